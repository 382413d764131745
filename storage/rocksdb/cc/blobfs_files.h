// Open files and directories of a volume, as RocksDB uses them.
//
// RocksDB's files may read and write at any offset into any memory; the volume reads the device into memory of its
// own and copies once, and takes what is appended into buffers of its own, from which it writes in large pieces.
// So none of them is "direct" in RocksDB's sense, which would add buffers, copies and padding of RocksDB's own to
// do the same.
//
// Thread safety: that of RocksDB's interfaces. A handle of the volume may be used by many threads, so
// Sync may run beside Append.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace_blobfs.h"
#include "rocksdb/file_system.h"

namespace millrace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// A share of a mounted volume.
class BlobfsVolume {
 public:
  // Takes the handle over.
  explicit BlobfsVolume(millrace_blobfs_volume* handle);
  ~BlobfsVolume() { millrace_blobfs_close(handle_); }

  BlobfsVolume(const BlobfsVolume&) = delete;
  BlobfsVolume& operator=(const BlobfsVolume&) = delete;

  const millrace_blobfs_volume* handle() const { return handle_; }

  // Tells the volumes of a process apart.
  uint64_t serial() const { return serial_; }

 private:
  millrace_blobfs_volume* const handle_;
  const uint64_t serial_;
};

// An open handle and what names it; closed by the destructor.
class BlobfsFile {
 public:
  static IOStatus Open(const std::shared_ptr<BlobfsVolume>& volume, const std::string& path,
                       uint32_t flags, const char* doing, BlobfsFile* result);

  BlobfsFile() = default;
  ~BlobfsFile() { Close(); }
  BlobfsFile(BlobfsFile&& other) noexcept { *this = std::move(other); }
  BlobfsFile& operator=(BlobfsFile&& other) noexcept;

  void Close();

  bool is_open() const { return handle_ != nullptr; }
  const millrace_blobfs_file* handle() const { return handle_; }
  const std::string& path() const { return path_; }

  IOStatus ReadAt(uint64_t offset, size_t n, Slice* result, char* scratch) const;
  IOStatus Sync() const;

  // See FSRandomAccessFile::GetUniqueId. All ids have the same length, which no varint has.
  size_t GetUniqueId(char* id, size_t max_size) const;

 private:
  millrace_blobfs_file* handle_ = nullptr;
  std::string path_;
  uint64_t serial_ = 0;
};

class BlobfsSequentialFile : public rocksdb::FSSequentialFile {
 public:
  explicit BlobfsSequentialFile(BlobfsFile&& file) : file_(std::move(file)) {}

  // At the end of a file that grows, later reads return what was added.
  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override;
  IOStatus Skip(uint64_t n) override;
  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                          IODebugContext*) override {
    return file_.ReadAt(offset, n, result, scratch);
  }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  BlobfsFile file_;
  uint64_t position_ = 0;
};

// A read that RocksDB waits for later.
class BlobfsRead {
 public:
  BlobfsRead(rocksdb::FSReadRequest* request,
             std::function<void(rocksdb::FSReadRequest&, void*)> callback, void* argument,
             std::string path, millrace_blobfs_read* handle);
  ~BlobfsRead() { millrace_blobfs_read_free(handle_); }

  BlobfsRead(const BlobfsRead&) = delete;
  BlobfsRead& operator=(const BlobfsRead&) = delete;

  // Waits for the data, and tells RocksDB unless it was told.
  void Finish();
  // Gives the read up, and tells RocksDB unless it was told.
  void Abort();

 private:
  void Tell(IOStatus status, size_t length);

  const uint64_t offset_;
  const size_t length_;
  char* const scratch_;
  const std::function<void(rocksdb::FSReadRequest&, void*)> callback_;
  void* const argument_;
  const std::string path_;
  millrace_blobfs_read* handle_;
  bool told_ = false;
};

class BlobfsRandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  explicit BlobfsRandomAccessFile(BlobfsFile&& file) : file_(std::move(file)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return file_.ReadAt(offset, n, result, scratch);
  }
  IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count, const IOOptions&,
                     IODebugContext*) override;
  IOStatus ReadAsync(rocksdb::FSReadRequest& request, const IOOptions&,
                     std::function<void(rocksdb::FSReadRequest&, void*)> callback, void* argument,
                     void** io_handle, rocksdb::IOHandleDeleter* deleter, IODebugContext*) override;
  // For compactions, which go through a whole file. Else NotSupported: RocksDB then reads ahead into buffers of
  // its own, one for each iterator.
  IOStatus Prefetch(uint64_t offset, size_t n, const IOOptions&, IODebugContext*) override;
  size_t GetUniqueId(char* id, size_t max_size) const override {
    return file_.GetUniqueId(id, max_size);
  }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  const BlobfsFile file_;
};

// A file for readers that asked for memory mapping and keep the slices they are given: it is read as a whole.
class BlobfsWholeFile : public rocksdb::FSRandomAccessFile {
 public:
  static IOStatus Load(BlobfsFile&& file, std::unique_ptr<rocksdb::FSRandomAccessFile>* result);

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override;
  size_t GetUniqueId(char* id, size_t max_size) const override {
    return file_.GetUniqueId(id, max_size);
  }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  BlobfsWholeFile(BlobfsFile&& file, std::string contents)
      : file_(std::move(file)), contents_(std::move(contents)) {}

  const BlobfsFile file_;
  const std::string contents_;
};

class BlobfsWritableFile : public rocksdb::FSWritableFile {
 public:
  BlobfsWritableFile(const rocksdb::FileOptions& options, BlobfsFile&& file)
      : FSWritableFile(options), file_(std::move(file)) {}

  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override;
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&,
                            IODebugContext*) override;
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override;
  IOStatus Close(const IOOptions&, IODebugContext*) override;
  // Readers see what was appended without it.
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return file_.Sync(); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return file_.Sync(); }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override;
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions&, IODebugContext*) override;
  // RocksDB reserves more than it needs and does not look at what came of it: that would only keep space from
  // others. The volume lets files grow in few pieces by itself.
  void PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) override {}
  size_t GetUniqueId(char* id, size_t max_size) const override {
    return file_.GetUniqueId(id, max_size);
  }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  BlobfsFile file_;
  // The size when the file was closed.
  uint64_t size_closed_ = 0;
};

class BlobfsRandomRWFile : public rocksdb::FSRandomRWFile {
 public:
  explicit BlobfsRandomRWFile(BlobfsFile&& file) : file_(std::move(file)) {}

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions&, IODebugContext*) override;
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return file_.ReadAt(offset, n, result, scratch);
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return file_.Sync(); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return file_.Sync(); }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    file_.Close();
    return IOStatus::OK();
  }

 private:
  BlobfsFile file_;
};

class BlobfsDirectory : public rocksdb::FSDirectory {
 public:
  BlobfsDirectory(std::shared_ptr<BlobfsVolume> volume, std::string path, uint64_t id)
      : volume_(std::move(volume)), path_(std::move(path)), id_(id) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override;
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& reason) override;
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  size_t GetUniqueId(char* id, size_t max_size) const override;

 private:
  const std::shared_ptr<BlobfsVolume> volume_;
  const std::string path_;
  const uint64_t id_;
};

}  // namespace millrace
