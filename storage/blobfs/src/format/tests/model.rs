//! A file system that is as simple as can be: paths, and the bytes of files.

use std::collections::BTreeMap;

use crate::error::ErrorKind;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    /// An index into [`Model::contents`].
    File(usize),
}

/// Paths without the slash at the end; the root is the empty one.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) contents: Vec<Vec<u8>>,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            nodes: BTreeMap::from([(String::new(), Node::Directory)]),
            contents: Vec::new(),
        }
    }

    pub(super) fn directories(&self) -> Vec<String> {
        self.paths(|node| node == Node::Directory)
    }

    pub(super) fn files(&self) -> Vec<String> {
        self.paths(|node| node != Node::Directory)
    }

    fn paths(&self, wanted: impl Fn(Node) -> bool) -> Vec<String> {
        let all = self.nodes.iter().filter(|(_, node)| wanted(**node));
        all.map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn content(&mut self, path: &str) -> &mut Vec<u8> {
        match self.nodes[path] {
            Node::File(index) => &mut self.contents[index],
            Node::Directory => panic!("{path} is a directory"),
        }
    }

    fn has_children(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.nodes.keys().any(|other| other.starts_with(&prefix))
    }

    pub(super) fn links(&self, index: usize) -> usize {
        let all = self.nodes.values();
        all.filter(|node| **node == Node::File(index)).count()
    }

    pub(super) fn create(&mut self, path: &str, directory: bool) -> Result<(), ErrorKind> {
        if self.nodes.contains_key(path) {
            return Err(ErrorKind::Exists);
        }
        let node = if directory {
            Node::Directory
        } else {
            self.contents.push(Vec::new());
            Node::File(self.contents.len() - 1)
        };
        self.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> Result<(), ErrorKind> {
        let node = *self.nodes.get(from).ok_or(ErrorKind::NotFound)?;
        if node == Node::Directory {
            return Err(ErrorKind::IsDirectory);
        }
        if self.nodes.contains_key(to) {
            return Err(ErrorKind::Exists);
        }
        self.nodes.insert(to.to_owned(), node);
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &str) -> Result<(), ErrorKind> {
        if !self.nodes.contains_key(path) {
            return Err(ErrorKind::NotFound);
        }
        if self.has_children(path) {
            return Err(ErrorKind::NotEmpty);
        }
        self.nodes.remove(path);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), ErrorKind> {
        let node = *self.nodes.get(from).ok_or(ErrorKind::NotFound)?;
        let replaced = self.nodes.get(to).copied();
        if from == to || (replaced == Some(node) && node != Node::Directory) {
            return Ok(());
        }
        if node == Node::Directory && to.starts_with(&format!("{from}/")) {
            return Err(ErrorKind::Invalid);
        }
        match (node, replaced) {
            (Node::Directory, Some(Node::File(_))) => return Err(ErrorKind::NotDirectory),
            (Node::File(_), Some(Node::Directory)) => return Err(ErrorKind::IsDirectory),
            (Node::Directory, Some(Node::Directory)) if self.has_children(to) => {
                return Err(ErrorKind::NotEmpty);
            }
            _ => {}
        }
        let prefix = format!("{from}/");
        let moved: Vec<String> = self
            .nodes
            .keys()
            .filter(|path| *path == from || path.starts_with(&prefix))
            .cloned()
            .collect();
        for path in moved {
            let node = self.nodes.remove(&path).expect("it was listed");
            self.nodes
                .insert(format!("{to}{}", &path[from.len()..]), node);
        }
        Ok(())
    }
}
