//! Documents that are read several times.

use std::sync::Arc;

use bson::{Document, RawDocumentBuf};
use millrace_expression::sort::SortItem;
use millrace_expression::spill::{RunReader, Spill};
use millrace_value::stage_memory::StageMemory;
use millrace_value::{Error, ErrorCode, Operation, Result, size};

use super::DocumentStream;
use super::context::Context;

/// All documents of a stream: in memory, and what does not fit there in scratch space.
pub(super) struct Buffered {
    documents: Arc<[Document]>,
    bytes: usize,
    memory: Arc<StageMemory>,
    spill: Option<Spill>,
}

impl Buffered {
    /// Reads `source` to its end.
    pub(super) fn read(
        source: &mut dyn DocumentStream,
        operation: &Operation,
        context: &Context,
    ) -> Result<Self> {
        let (mut documents, mut bytes) = (Vec::new(), 0);
        let mut memory = StageMemory::default();
        let mut overflow = None;
        while let Some(document) = source.next(operation)? {
            operation.check()?;
            bytes += size::document_bytes(&document);
            if !memory.allows(operation, bytes) {
                bytes -= size::document_bytes(&document);
                overflow = Some(document);
                break;
            }
            documents.push(document);
        }
        let spill = match overflow {
            Some(first) => Some(spill_rest(first, source, operation, context)?),
            None => None,
        };
        Ok(Self {
            documents: documents.into(),
            bytes,
            memory: Arc::new(memory),
            spill,
        })
    }

    /// The documents from the first on. The stream must not outlive this.
    pub(super) fn stream(&self) -> Result<Box<dyn DocumentStream>> {
        let rest = match &self.spill {
            Some(spill) => Some(spill.run(0)?),
            None => None,
        };
        let documents = Arc::clone(&self.documents);
        Ok(Box::new(BufferedStream {
            documents,
            next: 0,
            bytes: self.bytes,
            _memory: Arc::clone(&self.memory),
            rest,
        }))
    }
}

fn spill_rest(
    first: Document,
    source: &mut dyn DocumentStream,
    operation: &Operation,
    context: &Context,
) -> Result<Spill> {
    if !context.allow_disk_use {
        return Err(Error::new(
            ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
            "Exceeded memory limit for $facet, but didn't allow external sort. Pass \
             allowDiskUse:true to opt in.",
        ));
    }
    let mut spill = Spill::new(context.host.scratch()?);
    let mut run = spill.start_run();
    let mut next = Some(first);
    while let Some(document) = next {
        run.append(operation, &[], &document.to_bytes()?)?;
        next = source.next(operation)?;
    }
    Ok(spill)
}

struct BufferedStream {
    documents: Arc<[Document]>,
    next: usize,
    bytes: usize,
    _memory: Arc<StageMemory>,
    rest: Option<RunReader>,
}

impl DocumentStream for BufferedStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        operation.check()?;
        if let Some(document) = self.documents.get(self.next) {
            self.next += 1;
            return Ok(Some(document.clone()));
        }
        let Some(rest) = &mut self.rest else {
            return Ok(None);
        };
        match rest.read()? {
            Some(entry) => {
                let raw = RawDocumentBuf::from_bytes(entry.payload)?;
                Ok(Some(Document::try_from(raw)?))
            }
            None => Ok(None),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
