#include "blobfs_files.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "blobfs_counts.h"
#include "blobfs_status.h"

namespace millrace {

using rocksdb::DirFsyncOptions;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSReadRequest;

BlobfsCounts* blobfs_counts = nullptr;

namespace {

// The id of a file or directory: which volume of the process, and which of its files.
size_t UniqueId(uint64_t serial, uint64_t file, char* id, size_t max_size) {
  if (max_size < 2 * sizeof(uint64_t)) {
    return 0;
  }
  memcpy(id, &serial, sizeof(serial));
  memcpy(id + sizeof(serial), &file, sizeof(file));
  return 2 * sizeof(uint64_t);
}

uint64_t NextSerial() {
  static std::atomic<uint64_t> serial{0};
  return serial.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

BlobfsVolume::BlobfsVolume(millrace_blobfs_volume* handle) : handle_(handle), serial_(NextSerial()) {}

IOStatus BlobfsFile::Open(const std::shared_ptr<BlobfsVolume>& volume, const std::string& path,
                          uint32_t flags, const char* doing, BlobfsFile* result) {
  millrace_blobfs_error error;
  millrace_blobfs_file* handle = nullptr;
  const int32_t code =
      millrace_blobfs_file_open(volume->handle(), path.data(), path.size(), flags, &handle, &error);
  if (code == MILLRACE_BLOBFS_OK) {
    result->Close();
    result->handle_ = handle;
    result->path_ = path;
    result->serial_ = volume->serial();
  }
  return StatusOf(code, error, doing, path);
}

BlobfsFile& BlobfsFile::operator=(BlobfsFile&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(path_, other.path_);
  std::swap(serial_, other.serial_);
  return *this;
}

void BlobfsFile::Close() {
  millrace_blobfs_file_close(handle_);
  handle_ = nullptr;
}

IOStatus BlobfsFile::ReadAt(uint64_t offset, size_t n, Slice* result, char* scratch) const {
  millrace_blobfs_error error;
  size_t read = 0;
  const int32_t code = millrace_blobfs_read_at(handle_, offset, scratch, n, &read, &error);
  *result = Slice(scratch, read);
  CountRead(read);
  return StatusOf(code, error, "reading", path_);
}

IOStatus BlobfsFile::Sync() const {
  millrace_blobfs_error error;
  CountSync();
  return StatusOf(millrace_blobfs_file_sync(handle_, &error), error, "syncing", path_);
}

size_t BlobfsFile::GetUniqueId(char* id, size_t max_size) const {
  millrace_blobfs_status status;
  if (millrace_blobfs_file_status(handle_, &status, nullptr) != MILLRACE_BLOBFS_OK) {
    return 0;
  }
  return UniqueId(serial_, status.id, id, max_size);
}

IOStatus BlobfsSequentialFile::Read(size_t n, const IOOptions&, Slice* result, char* scratch,
                                    IODebugContext*) {
  IOStatus status = file_.ReadAt(position_, n, result, scratch);
  if (status.ok()) {
    position_ += result->size();
  }
  return status;
}

IOStatus BlobfsSequentialFile::Skip(uint64_t n) {
  const uint64_t size = millrace_blobfs_file_size(file_.handle());
  if (position_ < size) {
    position_ += std::min(n, size - position_);
  }
  return IOStatus::OK();
}

BlobfsRead::BlobfsRead(FSReadRequest* request, std::function<void(FSReadRequest&, void*)> callback,
                       void* argument, std::string path, millrace_blobfs_read* handle)
    : offset_(request->offset),
      length_(request->len),
      scratch_(request->scratch),
      callback_(std::move(callback)),
      argument_(argument),
      path_(std::move(path)),
      handle_(handle) {}

void BlobfsRead::Finish() {
  if (told_) {
    return;
  }
  millrace_blobfs_error error;
  const char* data = nullptr;
  size_t length = 0;
  const int32_t code = millrace_blobfs_read_wait(handle_, &data, &length, &error);
  if (code == MILLRACE_BLOBFS_OK) {
    memcpy(scratch_, data, length);
  }
  millrace_blobfs_read_free(handle_);
  handle_ = nullptr;
  CountRead(length);
  Tell(StatusOf(code, error, "reading", path_), length);
}

void BlobfsRead::Abort() {
  if (told_) {
    return;
  }
  millrace_blobfs_read_free(handle_);
  handle_ = nullptr;
  // The interface says that aborted reads are not called back, but RocksDB frees what it keeps for one in
  // the callback alone, and its own file system calls.
  Tell(IOStatus::Aborted(), 0);
}

void BlobfsRead::Tell(IOStatus status, size_t length) {
  told_ = true;
  FSReadRequest request;
  request.offset = offset_;
  request.len = length_;
  request.scratch = scratch_;
  request.result = Slice(scratch_, length);
  request.status = std::move(status);
  callback_(request, argument_);
}

IOStatus BlobfsRandomAccessFile::MultiRead(FSReadRequest* requests, size_t count, const IOOptions&,
                                           IODebugContext*) {
  std::vector<millrace_blobfs_part> parts(count);
  for (size_t i = 0; i < count; i++) {
    parts[i] = {requests[i].offset, requests[i].scratch, requests[i].len, 0, MILLRACE_BLOBFS_OK};
  }
  millrace_blobfs_error error;
  error.message[0] = '\0';
  const int32_t code = millrace_blobfs_read_many(file_.handle(), parts.data(), count, &error);
  if (code != MILLRACE_BLOBFS_OK) {
    return StatusOf(code, error, "reading", file_.path());
  }
  for (size_t i = 0; i < count; i++) {
    requests[i].result = Slice(requests[i].scratch, parts[i].read);
    requests[i].status = StatusOf(parts[i].code, error, "reading", file_.path());
    CountRead(parts[i].read);
  }
  return IOStatus::OK();
}

IOStatus BlobfsRandomAccessFile::ReadAsync(FSReadRequest& request, const IOOptions&,
                                           std::function<void(FSReadRequest&, void*)> callback,
                                           void* argument, void** io_handle,
                                           rocksdb::IOHandleDeleter* deleter, IODebugContext*) {
  millrace_blobfs_error error;
  millrace_blobfs_read* handle = nullptr;
  const int32_t code =
      millrace_blobfs_read_start(file_.handle(), request.offset, request.len, &handle, &error);
  if (code != MILLRACE_BLOBFS_OK) {
    return StatusOf(code, error, "beginning to read", file_.path());
  }
  *io_handle = new BlobfsRead(&request, std::move(callback), argument, file_.path(), handle);
  *deleter = [](void* read) { delete static_cast<BlobfsRead*>(read); };
  return IOStatus::OK();
}

IOStatus BlobfsRandomAccessFile::Prefetch(uint64_t offset, size_t n, const IOOptions&,
                                          IODebugContext*) {
  // Iterators ask for less unless max_auto_readahead_size was raised so far.
  constexpr size_t kCompaction = size_t{1} << 20;
  // What reaches exactly to the end is the tail of a table that is opened: it is read in no order.
  const bool is_tail = offset + n == millrace_blobfs_file_size(file_.handle());
  if (n < kCompaction || is_tail) {
    return IOStatus::NotSupported("reading ahead of scans and tails");
  }
  millrace_blobfs_error error;
  uint32_t begun = 0;
  const int32_t code = millrace_blobfs_read_ahead(file_.handle(), offset, n, &begun, &error);
  if (code == MILLRACE_BLOBFS_OK && begun == 0) {
    return IOStatus::NotSupported("nothing is read ahead");
  }
  return StatusOf(code, error, "reading ahead", file_.path());
}

IOStatus BlobfsWholeFile::Load(BlobfsFile&& file, std::unique_ptr<FSRandomAccessFile>* result) {
  std::string contents(static_cast<size_t>(millrace_blobfs_file_size(file.handle())), '\0');
  Slice read;
  IOStatus status = file.ReadAt(0, contents.size(), &read, &contents[0]);
  if (status.ok()) {
    contents.resize(read.size());
    result->reset(new BlobfsWholeFile(std::move(file), std::move(contents)));
  }
  return status;
}

IOStatus BlobfsWholeFile::Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char*,
                               IODebugContext*) const {
  const uint64_t start = std::min<uint64_t>(offset, contents_.size());
  *result = Slice(contents_.data() + start, std::min<uint64_t>(n, contents_.size() - start));
  CountRead(result->size());
  return IOStatus::OK();
}

IOStatus BlobfsWritableFile::Append(const Slice& data, const IOOptions&, IODebugContext*) {
  millrace_blobfs_error error;
  CountWrite(data.size());
  const int32_t code = millrace_blobfs_append(file_.handle(), data.data(), data.size(), &error);
  return StatusOf(code, error, "appending", file_.path());
}

IOStatus BlobfsWritableFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&,
                                              IODebugContext*) {
  millrace_blobfs_error error;
  CountWrite(data.size());
  const int32_t code =
      millrace_blobfs_write_at(file_.handle(), offset, data.data(), data.size(), &error);
  return StatusOf(code, error, "writing", file_.path());
}

IOStatus BlobfsWritableFile::Truncate(uint64_t size, const IOOptions&, IODebugContext*) {
  millrace_blobfs_error error;
  const int32_t code = millrace_blobfs_truncate(file_.handle(), size, &error);
  return StatusOf(code, error, "truncating", file_.path());
}

IOStatus BlobfsWritableFile::Close(const IOOptions&, IODebugContext*) {
  if (file_.is_open()) {
    size_closed_ = millrace_blobfs_file_size(file_.handle());
    file_.Close();
  }
  return IOStatus::OK();
}

uint64_t BlobfsWritableFile::GetFileSize(const IOOptions&, IODebugContext*) {
  return file_.is_open() ? millrace_blobfs_file_size(file_.handle()) : size_closed_;
}

IOStatus BlobfsWritableFile::RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) {
  if (strict_bytes_per_sync_) {
    return file_.Sync();
  }
  millrace_blobfs_error error;
  const int32_t code = millrace_blobfs_write_behind(file_.handle(), &error);
  return StatusOf(code, error, "writing out", file_.path());
}

IOStatus BlobfsRandomRWFile::Write(uint64_t offset, const Slice& data, const IOOptions&,
                                   IODebugContext*) {
  millrace_blobfs_error error;
  CountWrite(data.size());
  const int32_t code =
      millrace_blobfs_write_at(file_.handle(), offset, data.data(), data.size(), &error);
  return StatusOf(code, error, "writing", file_.path());
}

IOStatus BlobfsDirectory::Fsync(const IOOptions&, IODebugContext*) {
  millrace_blobfs_error error;
  CountSync();
  return StatusOf(millrace_blobfs_sync(volume_->handle(), &error), error, "syncing", path_);
}

IOStatus BlobfsDirectory::FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                                              const DirFsyncOptions& reason) {
  // The sync of the new file has put its name on the medium, too.
  if (reason.reason == DirFsyncOptions::FsyncReason::kNewFileSynced) {
    return IOStatus::OK();
  }
  return Fsync(options, debug);
}

size_t BlobfsDirectory::GetUniqueId(char* id, size_t max_size) const {
  return UniqueId(volume_->serial(), id_, id, max_size);
}

}  // namespace millrace
