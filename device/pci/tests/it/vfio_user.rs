//! The client against the server of the crate `vfio_user`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use millrace_memory::{ErrorKind as MemoryErrorKind, Pages, Region, RegionOptions};
use millrace_pci::{Bar, ErrorKind, Function, vfio_user as client};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;
use vfio_bindings::bindings::vfio;
use vfio_user::{
    DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea,
};

const BAR_SIZE: usize = 128 << 10;
/// The page that may be mapped: as large as any host's.
const AREA_SIZE: usize = 64 << 10;
const VECTORS: u32 = 5;

/// What the device at the other end has seen.
#[derive(Debug, Default)]
struct Seen {
    config: Vec<u8>,
    mappings: Vec<(u64, u64, Option<File>)>,
    /// The events of vectors, by their numbers.
    events: Vec<Option<File>>,
    resets: u32,
    /// How many bytes of registers were asked for by messages.
    messages: usize,
    refuse_memory: bool,
}

/// A device whose registers are a file.
#[derive(Clone, Debug)]
struct Device {
    registers: Arc<File>,
    seen: Arc<Mutex<Seen>>,
}

impl Device {
    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(22)
}

impl ServerBackend for Device {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if region == vfio::VFIO_PCI_CONFIG_REGION_INDEX {
            let start = usize::try_from(offset).map_err(|_| invalid())?;
            let config = self.with(|seen| seen.config.clone());
            let bytes = config.get(start..start + data.len()).ok_or_else(invalid)?;
            data.copy_from_slice(bytes);
            return Ok(());
        }
        self.with(|seen| seen.messages += data.len());
        self.registers.read_exact_at(data, offset)
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if region == vfio::VFIO_PCI_CONFIG_REGION_INDEX {
            let start = usize::try_from(offset).map_err(|_| invalid())?;
            return self.with(|seen| {
                let place = seen.config.get_mut(start..start + data.len());
                place.ok_or_else(invalid)?.copy_from_slice(data);
                Ok(())
            });
        }
        self.with(|seen| seen.messages += data.len());
        self.registers.write_all_at(data, offset)
    }

    fn dma_map(
        &mut self,
        _: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        assert_eq!(offset, 0);
        self.with(|seen| {
            if seen.refuse_memory {
                return Err(invalid());
            }
            seen.mappings.push((address, size, file));
            Ok(())
        })
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.with(|seen| {
            let mut mappings = seen.mappings.iter();
            let found = mappings.position(|mapping| (mapping.0, mapping.1) == (address, size));
            seen.mappings.remove(found.ok_or_else(invalid)?);
            Ok(())
        })
    }

    fn reset(&mut self) -> io::Result<()> {
        self.with(|seen| seen.resets += 1);
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        assert_eq!(index, vfio::VFIO_PCI_MSIX_IRQ_INDEX);
        self.with(|seen| {
            if flags & vfio::VFIO_IRQ_SET_DATA_NONE != 0 {
                seen.events.clear();
                return Ok(());
            }
            assert_eq!(count as usize, files.len());
            for (number, file) in (start as usize..).zip(files) {
                let length = seen.events.len().max(number + 1);
                seen.events.resize_with(length, || None);
                seen.events[number] = Some(file);
            }
            Ok(())
        })
    }
}

/// A server in a thread.
struct Fixture {
    _folder: TempDir,
    path: PathBuf,
    device: Device,
    serving: Option<JoinHandle<()>>,
}

impl Fixture {
    fn new(resettable: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("socket");
        let registers = memfd_create("registers", MemfdFlags::CLOEXEC).expect("a memfd");
        let registers = File::from(registers);
        registers.set_len(BAR_SIZE as u64).expect("memory is left");
        let mut config = vec![0; 256];
        config[..12].copy_from_slice(&[0x36, 0x1b, 0x10, 0, 0, 0, 0, 0, 2, 2, 8, 1]);
        let device = Device {
            registers: Arc::new(registers),
            seen: Arc::new(Mutex::new(Seen {
                config,
                ..Seen::default()
            })),
        };
        let server = Server::new(&path, resettable, interrupts(), regions(&device));
        let server = server.expect("the path is free");
        let mut backend = device.clone();
        let serving = thread::spawn(move || server.run(&mut backend).expect("a client comes"));
        Self {
            _folder: folder,
            path,
            device,
            serving: Some(serving),
        }
    }

    fn connect(&self) -> Arc<dyn Function> {
        client::connect(&self.path).expect("the server listens")
    }

    /// Waits until the server has seen the client go.
    fn end(mut self) -> Device {
        let serving = self.serving.take().expect("it is ended once");
        serving.join().expect("the server does not panic");
        self.device.clone()
    }
}

fn interrupts() -> Vec<IrqInfo> {
    let interrupt = |index| IrqInfo {
        index,
        flags: vfio::VFIO_IRQ_INFO_EVENTFD,
        count: if index == vfio::VFIO_PCI_MSIX_IRQ_INDEX {
            VECTORS
        } else {
            0
        },
    };
    (0..5).map(interrupt).collect()
}

fn regions(device: &Device) -> Vec<ServerRegion> {
    let region = |index| {
        let (size, flags) = match index {
            vfio::VFIO_PCI_BAR0_REGION_INDEX => (BAR_SIZE as u64, 7),
            vfio::VFIO_PCI_CONFIG_REGION_INDEX => (256, 3),
            _ => (0, 0),
        };
        let mappable = index == vfio::VFIO_PCI_BAR0_REGION_INDEX;
        let area = SparseArea {
            area: vfio::vfio_region_sparse_mmap_area {
                offset: 0,
                size: AREA_SIZE as u64,
            },
        };
        ServerRegion {
            region_info: vfio::vfio_region_info {
                argsz: 32,
                index,
                flags,
                size,
                ..Default::default()
            },
            sparse_areas: if mappable { vec![area] } else { Vec::new() },
            mmap_fd: mappable.then(|| device.registers.as_raw_fd()),
        }
    };
    (0..9).map(region).collect()
}

fn register(bar: &Bar, offset: u64) -> u32 {
    let register = bar.register(offset).expect("it is there");
    register.load().expect("it answers")
}

#[test]
fn registers_are_reached_mapped_or_not() {
    let fixture = Fixture::new(true);
    let function = fixture.connect();
    let identity = function.identity().expect("configuration space answers");
    assert_eq!((identity.vendor, identity.class), (0x1b36, 0x01_08_02));
    function.set_bus_master(true).expect("it can be written");
    assert_eq!(fixture.device.with(|seen| seen.config[4]), 0b110);

    let bar = function.bar(0).expect("there is one");
    assert_eq!(
        (bar.size(), bar.mapped()),
        (BAR_SIZE as u64, AREA_SIZE as u64)
    );
    let file = &fixture.device.registers;
    file.write_all_at(&0x1234_5678_u32.to_le_bytes(), 8)
        .expect("memory");
    assert_eq!(register(&bar, 8), 0x1234_5678);
    assert_eq!(fixture.device.with(|seen| seen.messages), 0);
    // Beyond what is mapped messages are sent.
    let far = AREA_SIZE as u64;
    bar.store_long(far, 0x1122_3344_5566_7788)
        .expect("it answers");
    assert_eq!(bar.load_long(far).ok(), Some(0x1122_3344_5566_7788));
    assert_eq!(register(&bar, far + 4), 0x1122_3344);
    assert_eq!(fixture.device.with(|seen| seen.messages), 20);
    assert_eq!(
        function.bar(2).map_err(|error| error.kind()).err(),
        Some(ErrorKind::OutOfRange)
    );
    // What is mapped outlives the server.
    drop(function);
    let register = bar.register(8).expect("it is there");
    drop(bar);
    fixture.end();
    assert_eq!(register.load().ok(), Some(0x1234_5678));
}

#[test]
fn memory_is_shared_until_it_is_taken_back() {
    let fixture = Fixture::new(true);
    let function = fixture.connect();
    let domain = function.domain();
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    let region = Arc::new(Region::new(1 << 16, &options).expect("some pages can be locked"));
    let iova = domain.map(&region).expect("the server takes it");
    rustix::io::pwrite(region.file(), b"for the device", 100).expect("memory");
    fixture.device.with(|seen| {
        let (address, size, file) = &seen.mappings[0];
        assert_eq!((*address, *size), (iova.0, 1 << 16));
        let mut bytes = [0; 14];
        let file = file.as_ref().expect("it comes with its file");
        file.read_exact_at(&mut bytes, 100).expect("memory");
        assert_eq!(&bytes, b"for the device");
    });
    // SAFETY: the server, which is the device, has no command.
    unsafe { domain.unmap(iova) }.expect("it is mapped");
    assert_eq!(fixture.device.with(|seen| seen.mappings.len()), 0);

    fixture.device.with(|seen| seen.refuse_memory = true);
    let error = domain.map(&region).expect_err("the server refuses");
    assert_eq!(error.kind(), MemoryErrorKind::Refused);
    fixture.device.with(|seen| seen.refuse_memory = false);
    domain
        .map(&region)
        .expect("a refusal does not end the connection");

    // What is still mapped is taken back in the end.
    drop((function, domain));
    assert_eq!(Arc::strong_count(&region), 1);
    assert_eq!(fixture.end().with(|seen| seen.mappings.len()), 0);
}

#[test]
fn vectors_signal_their_events() {
    let fixture = Fixture::new(true);
    let function = fixture.connect();
    assert_eq!(u32::from(function.vectors()), VECTORS);
    let events: Vec<OwnedFd> = (0..=VECTORS)
        .map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"))
        .collect();
    let borrowed: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    function
        .set_vectors(&borrowed[..3])
        .expect("there are as many");
    fixture.device.with(|seen| {
        assert_eq!(seen.events.len(), 3);
        let mut event = seen.events[2].as_ref().expect("it is set");
        event.write_all(&1_u64.to_ne_bytes()).expect("an eventfd");
    });
    let mut count = [0; 8];
    assert!(rustix::io::read(&events[1], &mut count).is_err());
    assert_eq!(rustix::io::read(&events[2], &mut count), Ok(8));

    function
        .set_vectors(&borrowed[..1])
        .expect("there are as many");
    assert_eq!(fixture.device.with(|seen| seen.events.len()), 1);
    function.set_vectors(&[]).expect("they can be switched off");
    assert_eq!(fixture.device.with(|seen| seen.events.len()), 0);
    let error = function.set_vectors(&borrowed).expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_function_is_reset_if_the_server_can() {
    let fixture = Fixture::new(true);
    fixture.connect().reset().expect("it can be reset");
    assert_eq!(fixture.end().with(|seen| seen.resets), 1);

    let fixture = Fixture::new(false);
    let error = fixture.connect().reset().expect_err("it cannot");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(fixture.end().with(|seen| seen.resets), 0);
}

#[test]
fn nobody_at_the_path_is_told() {
    let error = client::connect("/nonexistent/socket".as_ref()).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
