//! What a program in C does, with one method for each function: the tests say what they call and what they get.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

use millrace_blobfs_c::*;

/// A code and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) code: i32,
    pub(crate) message: String,
}

pub(crate) type Outcome<T> = Result<T, Failed>;

/// Calls a function with room for an error and looks at the code it returns.
fn call(function: impl FnOnce(*mut CError) -> i32) -> Outcome<()> {
    let mut error = MaybeUninit::<CError>::uninit();
    let code = function(error.as_mut_ptr());
    if code == Code::Ok as i32 {
        return Ok(());
    }
    // SAFETY: a function that fails fills the structure.
    let error = unsafe { error.assume_init() };
    assert_eq!(error.code, code);
    // SAFETY: the interface ends every text by a zero byte.
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    let message = message.to_str().expect("the text is UTF-8").to_owned();
    Err(Failed { code, message })
}

/// What a function gives through a pointer.
fn output<T: Copy>(function: impl FnOnce(*mut T, *mut CError) -> i32) -> Outcome<T> {
    let mut out = MaybeUninit::<T>::uninit();
    call(|error| function(out.as_mut_ptr(), error))?;
    // SAFETY: a function that succeeds fills its outputs.
    Ok(unsafe { out.assume_init() })
}

/// A handle of a volume.
#[derive(Debug)]
pub(crate) struct Volume(pub(crate) *mut VolumeHandle);

/// A handle of a file.
#[derive(Debug)]
pub(crate) struct File(pub(crate) *mut FileHandle);

/// A handle of a lock.
#[derive(Debug)]
pub(crate) struct Lock(*mut LockHandle);

/// A handle of a read.
#[derive(Debug)]
pub(crate) struct Read(*mut ReadHandle);

// SAFETY: the interface lets any thread use a volume.
unsafe impl Sync for Volume {}
// SAFETY: the interface lets any thread use a file.
unsafe impl Sync for File {}

impl Drop for Volume {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's, which is gone now.
        unsafe { millrace_blobfs_close(self.0) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's, which is gone now.
        unsafe { millrace_blobfs_file_close(self.0) }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's, which is gone now.
        unsafe { millrace_blobfs_unlock(self.0) }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's, which is gone now.
        unsafe { millrace_blobfs_read_free(self.0) }
    }
}

impl Volume {
    pub(crate) fn open(spec: &str, options: OpenOptions) -> Outcome<Self> {
        let (text, length) = (spec.as_ptr().cast(), spec.len());
        // SAFETY: all pointers are those of values that stay during the call.
        output(|out, error| unsafe { millrace_blobfs_open(text, length, &options, out, error) })
            .map(Self)
    }

    pub(crate) fn unmount(&self) -> Outcome<()> {
        // SAFETY: the handle stays.
        call(|error| unsafe { millrace_blobfs_unmount(self.0, error) })
    }

    pub(crate) fn space(&self) -> CSpace {
        // SAFETY: the handle stays, the output has room.
        output(|out, error| unsafe { millrace_blobfs_get_space(self.0, out, error) })
            .expect("it is known")
    }

    pub(crate) fn counters(&self) -> CCounters {
        // SAFETY: the handle stays, the output has room.
        output(|out, error| unsafe { millrace_blobfs_get_counters(self.0, out, error) })
            .expect("they are known")
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        // SAFETY: the handle stays.
        unsafe { millrace_blobfs_block_bytes(self.0) }
    }

    pub(crate) fn status(&self, path: &[u8]) -> Outcome<CStatus> {
        let (text, length) = (path.as_ptr().cast(), path.len());
        // SAFETY: the handle stays, the output has room.
        output(|out, error| unsafe { millrace_blobfs_get_status(self.0, text, length, out, error) })
    }

    pub(crate) fn set_modified(&self, path: &str, ms: u64) -> Outcome<()> {
        let (text, length) = (path.as_ptr().cast(), path.len());
        // SAFETY: the handle and the text stay.
        call(|error| unsafe { millrace_blobfs_set_modified(self.0, text, length, ms, error) })
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Outcome<()> {
        let (text, length) = (from.as_ptr().cast(), from.len());
        let (to, to_length) = (to.as_ptr().cast(), to.len());
        // SAFETY: the handle and the texts stay.
        call(|error| unsafe { millrace_blobfs_rename(self.0, text, length, to, to_length, error) })
    }

    pub(crate) fn link(&self, existing: &str, added: &str) -> Outcome<()> {
        let (text, length) = (existing.as_ptr().cast(), existing.len());
        let (added, added_length) = (added.as_ptr().cast(), added.len());
        // SAFETY: the handle and the texts stay.
        call(|error| unsafe {
            millrace_blobfs_link(self.0, text, length, added, added_length, error)
        })
    }

    pub(crate) fn remove(&self, path: &str) -> Outcome<()> {
        let (text, length) = (path.as_ptr().cast(), path.len());
        // SAFETY: the handle and the text stay.
        call(|error| unsafe { millrace_blobfs_remove(self.0, text, length, error) })
    }

    pub(crate) fn create_dir(&self, path: &str) -> Outcome<()> {
        let (text, length) = (path.as_ptr().cast(), path.len());
        // SAFETY: the handle and the text stay.
        call(|error| unsafe { millrace_blobfs_create_dir(self.0, text, length, error) })
    }

    pub(crate) fn remove_dir(&self, path: &str) -> Outcome<()> {
        let (text, length) = (path.as_ptr().cast(), path.len());
        // SAFETY: the handle and the text stay.
        call(|error| unsafe { millrace_blobfs_remove_dir(self.0, text, length, error) })
    }

    pub(crate) fn sync(&self) -> Outcome<()> {
        // SAFETY: the handle stays.
        call(|error| unsafe { millrace_blobfs_sync(self.0, error) })
    }

    pub(crate) fn lock(&self, path: &str) -> Outcome<Lock> {
        let (text, length) = (path.as_ptr().cast(), path.len());
        // SAFETY: the handle and the text stay, the output has room.
        output(|out, error| unsafe { millrace_blobfs_lock_file(self.0, text, length, out, error) })
            .map(Lock)
    }

    /// The names in a directory with their kinds.
    pub(crate) fn read_dir(&self, path: &str) -> Outcome<Vec<(String, u32)>> {
        let (text, length) = (path.as_ptr().cast(), path.len());
        // SAFETY: the handle and the text stay, the output has room.
        let listing = output(|out, error| unsafe {
            millrace_blobfs_read_dir(self.0, text, length, out, error)
        })?;
        // SAFETY: the listing stays.
        let count = unsafe { millrace_blobfs_listing_length(listing) };
        let entry = |number: usize| {
            // SAFETY: the listing stays, the output has room.
            let entry = output(|out, error| unsafe {
                millrace_blobfs_listing_get(listing, number, out, error)
            })?;
            // SAFETY: the name is the listing's, which stays.
            let name = unsafe { std::slice::from_raw_parts(entry.name.cast(), entry.name_length) };
            Ok((String::from_utf8_lossy(name).into_owned(), entry.kind))
        };
        let entries = (0..count).map(entry).collect();
        let beyond: Failed = entry(count).expect_err("there is no such entry");
        assert_eq!(beyond.code, Code::Invalid as i32);
        // SAFETY: the listing is not used any more.
        unsafe { millrace_blobfs_listing_free(listing) };
        entries
    }

    pub(crate) fn file(&self, path: &str, flags: u32) -> Outcome<File> {
        let (text, length) = (path.as_ptr().cast(), path.len());
        // SAFETY: the handle and the text stay, the output has room.
        output(|out, error| unsafe {
            millrace_blobfs_file_open(self.0, text, length, flags, out, error)
        })
        .map(File)
    }
}

impl File {
    pub(crate) fn read_at(&self, offset: u64, length: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; length];
        let room = bytes.as_mut_ptr().cast();
        // SAFETY: the handle and the room stay, the output has room.
        let read = output(|out, error| unsafe {
            millrace_blobfs_read_at(self.0, offset, room, length, out, error)
        })?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Reads several parts; what each gave, or its code.
    pub(crate) fn read_many(&self, places: &[(u64, usize)]) -> Outcome<Vec<Result<Vec<u8>, i32>>> {
        let mut rooms: Vec<Vec<u8>> = places.iter().map(|&(_, length)| vec![0; length]).collect();
        let part = |(&(offset, length), room): (&(u64, usize), &mut Vec<u8>)| CPart {
            offset,
            out: room.as_mut_ptr().cast(),
            length,
            read: usize::MAX,
            code: i32::MAX,
        };
        let mut parts: Vec<CPart> = places.iter().zip(&mut rooms).map(part).collect();
        let (pointer, count) = (parts.as_mut_ptr(), parts.len());
        // SAFETY: the handle, the parts and their rooms stay.
        call(|error| unsafe { millrace_blobfs_read_many(self.0, pointer, count, error) })?;
        let result = |(part, mut room): (CPart, Vec<u8>)| {
            room.truncate(part.read);
            if part.code == Code::Ok as i32 {
                Ok(room)
            } else {
                Err(part.code)
            }
        };
        Ok(parts.into_iter().zip(rooms).map(result).collect())
    }

    pub(crate) fn start_read(&self, offset: u64, length: usize) -> Outcome<Read> {
        // SAFETY: the handle stays, the output has room.
        output(|out, error| unsafe {
            millrace_blobfs_read_start(self.0, offset, length, out, error)
        })
        .map(Read)
    }

    pub(crate) fn append(&self, data: &[u8]) -> Outcome<()> {
        let (pointer, length) = (data.as_ptr().cast(), data.len());
        // SAFETY: the handle and the data stay.
        call(|error| unsafe { millrace_blobfs_append(self.0, pointer, length, error) })
    }

    pub(crate) fn write_at(&self, offset: u64, data: &[u8]) -> Outcome<()> {
        let (pointer, length) = (data.as_ptr().cast(), data.len());
        // SAFETY: the handle and the data stay.
        call(|error| unsafe { millrace_blobfs_write_at(self.0, offset, pointer, length, error) })
    }

    pub(crate) fn truncate(&self, size: u64) -> Outcome<()> {
        // SAFETY: the handle stays.
        call(|error| unsafe { millrace_blobfs_truncate(self.0, size, error) })
    }

    pub(crate) fn reserve(&self, bytes: u64) -> Outcome<()> {
        // SAFETY: the handle stays.
        call(|error| unsafe { millrace_blobfs_reserve(self.0, bytes, error) })
    }

    pub(crate) fn write_behind(&self) -> Outcome<()> {
        // SAFETY: the handle stays.
        call(|error| unsafe { millrace_blobfs_write_behind(self.0, error) })
    }

    pub(crate) fn sync(&self) -> Outcome<()> {
        // SAFETY: the handle stays.
        call(|error| unsafe { millrace_blobfs_file_sync(self.0, error) })
    }

    pub(crate) fn size(&self) -> u64 {
        // SAFETY: the handle stays.
        unsafe { millrace_blobfs_file_size(self.0) }
    }

    pub(crate) fn status(&self) -> Outcome<CStatus> {
        // SAFETY: the handle stays, the output has room.
        output(|out, error| unsafe { millrace_blobfs_file_status(self.0, out, error) })
    }
}

impl Read {
    pub(crate) fn is_done(&mut self) -> Outcome<bool> {
        // SAFETY: the handle stays, and this thread has it alone.
        let done = output(|out, error| unsafe { millrace_blobfs_read_poll(self.0, out, error) })?;
        Ok(done != 0)
    }

    pub(crate) fn wait(&mut self) -> Outcome<Vec<u8>> {
        let (mut data, mut length) = (ptr::null(), 0);
        // SAFETY: the handle stays, and this thread has it alone; the outputs have room.
        call(|error| unsafe { millrace_blobfs_read_wait(self.0, &mut data, &mut length, error) })?;
        if length == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the bytes are the read's, which stays.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) }.to_vec())
    }
}
