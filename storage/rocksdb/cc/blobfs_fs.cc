#include "blobfs_fs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "blobfs_counts.h"
#include "blobfs_status.h"
#include "rocksdb/env.h"

namespace millrace {

using rocksdb::DirFsyncOptions;
using rocksdb::FileLock;
using rocksdb::FileOptions;
using rocksdb::FSDirectory;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSRandomRWFile;
using rocksdb::FSSequentialFile;
using rocksdb::FSSupportedOps;
using rocksdb::FSWritableFile;

namespace {

// What RocksDB collects before it appends. Larger pieces go straight to the volume; smaller ones are many, and two
// for each record of a log.
constexpr size_t kWriteBufferBytes = 4096;

class BlobfsFileLock : public FileLock {
 public:
  explicit BlobfsFileLock(millrace_blobfs_lock* handle) : handle_(handle) {}
  ~BlobfsFileLock() override { millrace_blobfs_unlock(handle_); }

 private:
  millrace_blobfs_lock* const handle_;
};

// Whether there is nothing of this name, whatever the reason.
bool IsAbsent(int32_t code) {
  return code == MILLRACE_BLOBFS_NOT_FOUND || code == MILLRACE_BLOBFS_NOT_DIRECTORY ||
         code == MILLRACE_BLOBFS_INVALID_PATH;
}

}  // namespace

std::string BlobfsFileSystem::Full(const std::string& path) const {
  if (root_.empty()) {
    return path;
  }
  // ".." is taken by the letter: the folders it leads out of need not be there.
  std::string full;
  for (const std::string& text : {root_, path}) {
    for (size_t start = 0; start <= text.size();) {
      const size_t end = std::min(text.find('/', start), text.size());
      const std::string name = text.substr(start, end - start);
      if (name == "..") {
        full.resize(full.empty() ? 0 : full.rfind('/'));
      } else if (!name.empty() && name != ".") {
        full += "/" + name;
      }
      start = end + 1;
    }
  }
  return full.empty() ? "/" : full;
}

IOStatus BlobfsFileSystem::Stat(const std::string& full, const char* doing,
                                millrace_blobfs_status* status) const {
  millrace_blobfs_error error;
  const int32_t code =
      millrace_blobfs_get_status(volume_->handle(), full.data(), full.size(), status, &error);
  return StatusOf(code, error, doing, full);
}

IOStatus BlobfsFileSystem::NewSequentialFile(const std::string& path, const FileOptions&,
                                             std::unique_ptr<FSSequentialFile>* result,
                                             IODebugContext*) {
  result->reset();
  BlobfsFile file;
  IOStatus status = BlobfsFile::Open(volume_, Full(path), 0, "opening to read", &file);
  if (status.ok()) {
    result->reset(new BlobfsSequentialFile(std::move(file)));
  }
  return status;
}

IOStatus BlobfsFileSystem::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                               std::unique_ptr<FSRandomAccessFile>* result,
                                               IODebugContext*) {
  result->reset();
  BlobfsFile file;
  IOStatus status = BlobfsFile::Open(volume_, Full(path), 0, "opening to read", &file);
  if (status.ok() && options.use_mmap_reads) {
    return BlobfsWholeFile::Load(std::move(file), result);
  }
  if (status.ok()) {
    result->reset(new BlobfsRandomAccessFile(std::move(file)));
  }
  return status;
}

IOStatus BlobfsFileSystem::OpenWritable(const std::string& full, uint32_t flags,
                                        const FileOptions& options,
                                        std::unique_ptr<FSWritableFile>* result) {
  result->reset();
  BlobfsFile file;
  IOStatus status = BlobfsFile::Open(volume_, full, flags, "opening to write", &file);
  if (status.ok()) {
    result->reset(new BlobfsWritableFile(options, std::move(file)));
  }
  return status;
}

IOStatus BlobfsFileSystem::NewWritableFile(const std::string& path, const FileOptions& options,
                                           std::unique_ptr<FSWritableFile>* result,
                                           IODebugContext*) {
  IOStatus status = OpenWritable(Full(path), MILLRACE_BLOBFS_CREATE | MILLRACE_BLOBFS_TRUNCATE,
                                 options, result);
  if (status.ok()) {
    CountCreation();
  }
  return status;
}

IOStatus BlobfsFileSystem::ReopenWritableFile(const std::string& path, const FileOptions& options,
                                              std::unique_ptr<FSWritableFile>* result,
                                              IODebugContext*) {
  return OpenWritable(Full(path), MILLRACE_BLOBFS_CREATE, options, result);
}

IOStatus BlobfsFileSystem::ReuseWritableFile(const std::string& path, const std::string& old_path,
                                             const FileOptions& options,
                                             std::unique_ptr<FSWritableFile>* result,
                                             IODebugContext* debug) {
  result->reset();
  IOStatus status = RenameFile(old_path, path, options.io_options, debug);
  return status.ok() ? OpenWritable(Full(path), MILLRACE_BLOBFS_TRUNCATE, options, result) : status;
}

IOStatus BlobfsFileSystem::NewRandomRWFile(const std::string& path, const FileOptions&,
                                           std::unique_ptr<FSRandomRWFile>* result,
                                           IODebugContext*) {
  result->reset();
  BlobfsFile file;
  IOStatus status = BlobfsFile::Open(volume_, Full(path), 0, "opening to read and write", &file);
  if (status.ok()) {
    result->reset(new BlobfsRandomRWFile(std::move(file)));
  }
  return status;
}

IOStatus BlobfsFileSystem::NewDirectory(const std::string& path, const IOOptions&,
                                        std::unique_ptr<FSDirectory>* result, IODebugContext*) {
  result->reset();
  millrace_blobfs_status known;
  IOStatus status = Stat(Full(path), "opening a directory", &known);
  if (status.ok() && known.kind != MILLRACE_BLOBFS_DIRECTORY) {
    return IOStatus::IOError("while opening a directory: " + path, "it is a file");
  }
  if (status.ok()) {
    result->reset(new BlobfsDirectory(volume_, path, known.id));
  }
  return status;
}

IOStatus BlobfsFileSystem::FileExists(const std::string& path, const IOOptions&, IODebugContext*) {
  const std::string full = Full(path);
  millrace_blobfs_error error;
  millrace_blobfs_status known;
  const int32_t code =
      millrace_blobfs_get_status(volume_->handle(), full.data(), full.size(), &known, &error);
  return IsAbsent(code) ? IOStatus::NotFound() : StatusOf(code, error, "looking for", full);
}

IOStatus BlobfsFileSystem::GetChildren(const std::string& path, const IOOptions& options,
                                       std::vector<std::string>* result, IODebugContext*) {
  const std::string full = Full(path);
  result->clear();
  millrace_blobfs_error error;
  millrace_blobfs_listing* listing = nullptr;
  const int32_t code =
      millrace_blobfs_read_dir(volume_->handle(), full.data(), full.size(), &listing, &error);
  if (code != MILLRACE_BLOBFS_OK) {
    return IsAbsent(code) ? IOStatus::NotFound() : StatusOf(code, error, "listing", full);
  }
  const size_t count = millrace_blobfs_listing_length(listing);
  result->reserve(count);
  for (size_t i = 0; i < count; i++) {
    millrace_blobfs_entry entry;
    if (millrace_blobfs_listing_get(listing, i, &entry, nullptr) != MILLRACE_BLOBFS_OK) {
      continue;
    }
    // As on POSIX: with do_not_recurse the result has files alone.
    if (!options.do_not_recurse || entry.kind != MILLRACE_BLOBFS_DIRECTORY) {
      result->emplace_back(entry.name, entry.name_length);
    }
  }
  millrace_blobfs_listing_free(listing);
  return IOStatus::OK();
}

IOStatus BlobfsFileSystem::DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) {
  const std::string full = Full(path);
  millrace_blobfs_error error;
  const int32_t code = millrace_blobfs_remove(volume_->handle(), full.data(), full.size(), &error);
  return StatusOf(code, error, "deleting", full);
}

IOStatus BlobfsFileSystem::Truncate(const std::string& path, size_t size, const IOOptions&,
                                    IODebugContext*) {
  BlobfsFile file;
  IOStatus status = BlobfsFile::Open(volume_, Full(path), 0, "opening to truncate", &file);
  if (status.ok()) {
    millrace_blobfs_error error;
    status = StatusOf(millrace_blobfs_truncate(file.handle(), size, &error), error, "truncating", path);
  }
  return status;
}

IOStatus BlobfsFileSystem::CreateDir(const std::string& path, const IOOptions&, IODebugContext*) {
  const std::string full = Full(path);
  millrace_blobfs_error error;
  const int32_t code =
      millrace_blobfs_create_dir(volume_->handle(), full.data(), full.size(), &error);
  return StatusOf(code, error, "making a directory", full);
}

IOStatus BlobfsFileSystem::CreateDirIfMissing(const std::string& path, const IOOptions&,
                                              IODebugContext*) {
  const std::string full = Full(path);
  millrace_blobfs_error error;
  const int32_t code =
      millrace_blobfs_create_dir(volume_->handle(), full.data(), full.size(), &error);
  if (code != MILLRACE_BLOBFS_EXISTS) {
    return StatusOf(code, error, "making a directory", full);
  }
  millrace_blobfs_status known;
  IOStatus status = Stat(Full(path), "making a directory", &known);
  if (status.ok() && known.kind != MILLRACE_BLOBFS_DIRECTORY) {
    return IOStatus::IOError("while making a directory: " + path, "it is a file");
  }
  return status;
}

IOStatus BlobfsFileSystem::CreateDirs(const std::string& path) {
  IOStatus status;
  size_t end = 0;
  while (status.ok() && end != std::string::npos) {
    end = path.find('/', end + 1);
    status = CreateDirIfMissing(path.substr(0, end), IOOptions(), nullptr);
  }
  return status;
}

IOStatus BlobfsFileSystem::DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) {
  const std::string full = Full(path);
  millrace_blobfs_error error;
  const int32_t code =
      millrace_blobfs_remove_dir(volume_->handle(), full.data(), full.size(), &error);
  return StatusOf(code, error, "removing a directory", full);
}

IOStatus BlobfsFileSystem::GetFileSize(const std::string& path, const IOOptions&, uint64_t* size,
                                       IODebugContext*) {
  millrace_blobfs_status known;
  IOStatus status = Stat(Full(path), "asking for the size", &known);
  *size = status.ok() ? known.size : 0;
  return status;
}

IOStatus BlobfsFileSystem::GetFileModificationTime(const std::string& path, const IOOptions&,
                                                   uint64_t* seconds, IODebugContext*) {
  millrace_blobfs_status known;
  IOStatus status = Stat(Full(path), "asking for the modification time", &known);
  if (status.ok()) {
    *seconds = known.modified_ms / 1000;
  }
  return status;
}

IOStatus BlobfsFileSystem::RenameFile(const std::string& from, const std::string& to,
                                      const IOOptions&, IODebugContext*) {
  const std::string full_from = Full(from);
  const std::string full_to = Full(to);
  millrace_blobfs_error error;
  const int32_t code = millrace_blobfs_rename(volume_->handle(), full_from.data(), full_from.size(), full_to.data(),
                                              full_to.size(), &error);
  return StatusOf(code, error, "renaming", full_from + " full_to " + to);
}

IOStatus BlobfsFileSystem::LinkFile(const std::string& existing, const std::string& added,
                                    const IOOptions&, IODebugContext*) {
  const std::string full_existing = Full(existing);
  const std::string full_added = Full(added);
  millrace_blobfs_error error;
  const int32_t code = millrace_blobfs_link(volume_->handle(), full_existing.data(), full_existing.size(),
                                            full_added.data(), full_added.size(), &error);
  return StatusOf(code, error, "linking", full_existing + " to " + full_added);
}

IOStatus BlobfsFileSystem::NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count,
                                        IODebugContext*) {
  millrace_blobfs_status known;
  IOStatus status = Stat(Full(path), "asking for the number of links", &known);
  if (status.ok()) {
    *count = known.links;
  }
  return status;
}

IOStatus BlobfsFileSystem::AreFilesSame(const std::string& first, const std::string& second,
                                        const IOOptions&, bool* same, IODebugContext*) {
  millrace_blobfs_status known[2];
  IOStatus status = Stat(Full(first), "comparing files", &known[0]);
  if (status.ok()) {
    status = Stat(Full(second), "comparing files", &known[1]);
  }
  if (status.ok()) {
    *same = known[0].id == known[1].id;
  }
  return status;
}

IOStatus BlobfsFileSystem::LockFile(const std::string& path, const IOOptions&, FileLock** lock,
                                    IODebugContext*) {
  const std::string full = Full(path);
  *lock = nullptr;
  millrace_blobfs_error error;
  millrace_blobfs_lock* handle = nullptr;
  const int32_t code =
      millrace_blobfs_lock_file(volume_->handle(), full.data(), full.size(), &handle, &error);
  if (code == MILLRACE_BLOBFS_IN_USE) {
    // What POSIX's file system says; programs look for it.
    return IOStatus::IOError("lock hold by current process: " + path, error.message);
  }
  if (code == MILLRACE_BLOBFS_OK) {
    *lock = new BlobfsFileLock(handle);
  }
  return StatusOf(code, error, "locking", full);
}

IOStatus BlobfsFileSystem::UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) {
  delete lock;
  return IOStatus::OK();
}

IOStatus BlobfsFileSystem::GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) {
  const char* given = getenv("TEST_TMPDIR");
  if (given != nullptr && given[0] != '\0') {
    *path = given;
  } else {
    *path = "/tmp/rocksdbtest-" + std::to_string(geteuid());
  }
  return CreateDirs(*path);
}

IOStatus BlobfsFileSystem::GetAbsolutePath(const std::string& path, const IOOptions&,
                                           std::string* absolute, IODebugContext*) {
  *absolute = !path.empty() && path[0] == '/' ? path : "/" + path;
  return IOStatus::OK();
}

IOStatus BlobfsFileSystem::GetFreeSpace(const std::string& path, const IOOptions&, uint64_t* bytes,
                                        IODebugContext*) {
  millrace_blobfs_error error;
  millrace_blobfs_space space;
  const int32_t code = millrace_blobfs_get_space(volume_->handle(), &space, &error);
  if (code == MILLRACE_BLOBFS_OK) {
    *bytes = space.free_bytes;
  }
  return StatusOf(code, error, "asking for free space", path);
}

IOStatus BlobfsFileSystem::IsDirectory(const std::string& path, const IOOptions&, bool* is_directory,
                                       IODebugContext*) {
  millrace_blobfs_status known;
  IOStatus status = Stat(Full(path), "asking for the kind", &known);
  if (status.ok() && is_directory != nullptr) {
    *is_directory = known.kind == MILLRACE_BLOBFS_DIRECTORY;
  }
  return status;
}

FileOptions BlobfsFileSystem::OptimizeForLogWrite(const FileOptions& options,
                                                  const rocksdb::DBOptions& database) const {
  FileOptions optimized = FileSystem::OptimizeForLogWrite(options, database);
  optimized.writable_file_max_buffer_size = kWriteBufferBytes;
  return optimized;
}

FileOptions BlobfsFileSystem::OptimizeForManifestWrite(const FileOptions& options) const {
  FileOptions optimized = FileSystem::OptimizeForManifestWrite(options);
  optimized.writable_file_max_buffer_size = kWriteBufferBytes;
  return optimized;
}

FileOptions BlobfsFileSystem::OptimizeForCompactionTableWrite(
    const FileOptions& options, const rocksdb::ImmutableDBOptions& database) const {
  FileOptions optimized = FileSystem::OptimizeForCompactionTableWrite(options, database);
  optimized.writable_file_max_buffer_size = kWriteBufferBytes;
  return optimized;
}

IOStatus BlobfsFileSystem::Poll(std::vector<void*>& io_handles, size_t) {
  for (void* handle : io_handles) {
    static_cast<BlobfsRead*>(handle)->Finish();
  }
  return IOStatus::OK();
}

IOStatus BlobfsFileSystem::AbortIO(std::vector<void*>& io_handles) {
  for (void* handle : io_handles) {
    static_cast<BlobfsRead*>(handle)->Abort();
  }
  return IOStatus::OK();
}

void BlobfsFileSystem::SupportedOps(int64_t& operations) {
  operations = int64_t{1} << FSSupportedOps::kAsyncIO;
}

}  // namespace millrace
