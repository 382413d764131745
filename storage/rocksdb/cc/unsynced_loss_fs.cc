// A file system that forgets what was not synced.
//
// A killed process leaves what it wrote in the kernel's page cache, so killing it says nothing about the
// loss of power. This file system keeps unsynced data in the memory of the process: SIGKILL, or opening
// the folder again through a new instance, then shows what a power cut would have left.
//
// The kernel's page cache stands for the device: what is called real here was written to the operating
// system's file, and no sync goes further down. That is enough for a killed process and makes tests with
// thousands of syncs quick; the loss of the kernel itself is not what this can show.
//
// Model (a journaling file system with ordered metadata):
//   1. What was appended reaches the real file only by Sync or Fsync of that file. Flush, Close and
//      RangeSync promise nothing and do nothing.
//   2. A file that was created does not exist for real until it, or its folder, is synced. Without the
//      former it then exists empty. Renaming or linking it also makes it exist.
//   3. Renames, links, deletions and new folders are real at once. This is the order that catches a
//      program that removes or replaces something before its successor is safe.
//   4. A Sync that fails loses the data it was to write, as Linux does: the pages count as clean, a later
//      Sync succeeds, and the file holds zeros.
//   5. A file that is reused has its new name at once and keeps what was synced of its old contents
//      until a Sync overwrites it from the start.
// Reads, sizes and listings see everything, real or not. RocksDB's own info log is not part of this.
//
// Faults: all operations that change something are counted. The operation with a chosen number fails,
// and with it, if the power is cut there, all later ones.
//
// Thread safety: UnsyncedLossFs::mutex_ guards the names, Inode::mutex guards one file; the former
// is taken before the latter, never after.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/io_status.h"
#include "rocksdb/slice.h"
#include "rocksdb_env.h"

namespace {

using ROCKSDB_NAMESPACE::FileAttributes;
using ROCKSDB_NAMESPACE::FileOptions;
using ROCKSDB_NAMESPACE::FileSystem;
using ROCKSDB_NAMESPACE::FileSystemWrapper;
using ROCKSDB_NAMESPACE::FSDirectory;
using ROCKSDB_NAMESPACE::FSRandomAccessFile;
using ROCKSDB_NAMESPACE::FSRandomRWFile;
using ROCKSDB_NAMESPACE::FSSequentialFile;
using ROCKSDB_NAMESPACE::FSWritableFile;
using ROCKSDB_NAMESPACE::IODebugContext;
using ROCKSDB_NAMESPACE::IOOptions;
using ROCKSDB_NAMESPACE::IOStatus;
using ROCKSDB_NAMESPACE::MemoryMappedFileBuffer;
using ROCKSDB_NAMESPACE::Slice;

// Counts operations and fails the chosen one.
class Faults {
 public:
  IOStatus Admit(const char* operation) {
    std::lock_guard<std::mutex> guard(mutex_);
    const uint64_t number = operations_++;
    if (number == fail_at_ || cut_) {
      cut_ = cut_ || cut_at_fault_;
      return IOStatus::IOError("injected fault in operation " + std::to_string(number), operation);
    }
    return IOStatus::OK();
  }

  void FailAt(uint64_t number, bool cut_power) {
    std::lock_guard<std::mutex> guard(mutex_);
    fail_at_ = number;
    cut_at_fault_ = cut_power;
  }

  uint64_t operations() {
    std::lock_guard<std::mutex> guard(mutex_);
    return operations_;
  }

 private:
  std::mutex mutex_;
  uint64_t operations_ = 0;
  uint64_t fail_at_ = UINT64_MAX;
  bool cut_at_fault_ = false;
  bool cut_ = false;
};

// A file of which something may not be real yet.
struct Inode {
  std::mutex mutex;
  std::string path;
  FileOptions options;
  // Whether the file exists under `path` for real.
  bool real = false;
  // Whether its name is gone: a sync must not bring it back.
  bool unlinked = false;
  // The real file, when it is real and open for writing.
  std::shared_ptr<FSWritableFile> file;
  uint64_t real_size = 0;
  // Where the tail begins: the end of the real file, unless that was reused and is being overwritten.
  uint64_t position = 0;
  // What was appended after the last sync.
  std::string tail;

  uint64_t Size() const { return std::max(real_size, position + tail.size()); }

  // Makes the file exist, empty. The mutex is held.
  IOStatus Create(FileSystem* target) {
    if (real || unlinked) {
      return IOStatus::OK();
    }
    std::unique_ptr<FSWritableFile> created;
    IOStatus status = target->NewWritableFile(path, options, &created, nullptr);
    if (status.ok()) {
      file = std::move(created);
      real = true;
    }
    return status;
  }
};

using InodePtr = std::shared_ptr<Inode>;

std::string Normalize(const std::string& path) {
  std::string normal;
  for (char c : path) {
    if (c != '/' || normal.empty() || normal.back() != '/') {
      normal.push_back(c);
    }
  }
  if (normal.size() > 1 && normal.back() == '/') {
    normal.pop_back();
  }
  return normal;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

class UnsyncedLossWritableFile : public FSWritableFile {
 public:
  UnsyncedLossWritableFile(const FileOptions& options, std::shared_ptr<FileSystem> target,
                        std::shared_ptr<Faults> faults, InodePtr inode)
      : FSWritableFile(options),
        target_(std::move(target)),
        faults_(std::move(faults)),
        inode_(std::move(inode)) {}

  using FSWritableFile::Append;

  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    IOStatus status = faults_->Admit("append");
    if (status.ok()) {
      std::lock_guard<std::mutex> guard(inode_->mutex);
      inode_->tail.append(data.data(), data.size());
    }
    return status;
  }

  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = faults_->Admit("truncate");
    if (!status.ok()) {
      return status;
    }
    std::lock_guard<std::mutex> guard(inode_->mutex);
    inode_->position = std::min(inode_->position, size);
    inode_->tail.resize(size - inode_->position);
    if (size >= inode_->real_size) {
      return status;
    }
    inode_->real_size = size;
    return inode_->file->Truncate(size, options, debug);
  }

  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return MakeReal(options, debug);
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return MakeReal(options, debug);
  }

  bool IsSyncThreadSafe() const override { return true; }

  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    std::lock_guard<std::mutex> guard(inode_->mutex);
    return inode_->Size();
  }

 private:
  IOStatus MakeReal(const IOOptions& options, IODebugContext* debug) {
    IOStatus status = faults_->Admit("sync");
    std::lock_guard<std::mutex> guard(inode_->mutex);
    if (!status.ok()) {
      inode_->tail.assign(inode_->tail.size(), '\0');
      return status;
    }
    status = inode_->Create(target_.get());
    if (!status.ok() || !inode_->file || inode_->tail.empty()) {
      return status;
    }
    status = inode_->file->Append(inode_->tail, options, debug);
    if (status.ok()) {
      inode_->position += inode_->tail.size();
      inode_->real_size = std::max(inode_->real_size, inode_->position);
      inode_->tail.clear();
      inode_->tail.shrink_to_fit();
    }
    return status;
  }

  const std::shared_ptr<FileSystem> target_;
  const std::shared_ptr<Faults> faults_;
  const InodePtr inode_;
};

// Reads the real part of a file and its tail as one.
class UnsyncedLossReader {
 public:
  UnsyncedLossReader(std::shared_ptr<FileSystem> target, InodePtr inode)
      : target_(std::move(target)), inode_(std::move(inode)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) {
    std::lock_guard<std::mutex> guard(inode_->mutex);
    const uint64_t tail_start = inode_->position;
    const uint64_t tail_end = tail_start + inode_->tail.size();
    size_t done = 0;
    while (done < n && offset + done < inode_->Size()) {
      const uint64_t at = offset + done;
      if (at >= tail_start && at < tail_end) {
        done += inode_->tail.copy(scratch + done, n - done, static_cast<size_t>(at - tail_start));
        continue;
      }
      const uint64_t end = at < tail_start && tail_start < tail_end ? tail_start : inode_->real_size;
      IOStatus status = ReadReal(at, std::min<uint64_t>(end - at, n - done), options, scratch + done, debug);
      if (!status.ok()) {
        return status;
      }
      done += static_cast<size_t>(std::min<uint64_t>(end - at, n - done));
    }
    *result = Slice(scratch, done);
    return IOStatus::OK();
  }

 private:
  // Reads exactly `n` bytes of the real file. The inode's mutex is held.
  IOStatus ReadReal(uint64_t offset, size_t n, const IOOptions& options, char* scratch,
                    IODebugContext* debug) {
    IOStatus status;
    if (!real_) {
      status = target_->NewRandomAccessFile(inode_->path, inode_->options, &real_, debug);
    }
    size_t done = 0;
    while (status.ok() && done < n) {
      Slice part;
      status = real_->Read(offset + done, n - done, options, &part, scratch + done, debug);
      if (status.ok() && part.empty()) {
        return IOStatus::IOError("the real file is shorter than it was written", inode_->path);
      }
      if (status.ok() && part.data() != scratch + done) {
        memmove(scratch + done, part.data(), part.size());
      }
      done += part.size();
    }
    return status;
  }

  const std::shared_ptr<FileSystem> target_;
  const InodePtr inode_;
  // Opened by the first read of something real; guarded by the inode's mutex.
  std::unique_ptr<FSRandomAccessFile> real_;
};

class UnsyncedLossRandomAccessFile : public FSRandomAccessFile {
 public:
  UnsyncedLossRandomAccessFile(std::shared_ptr<FileSystem> target, InodePtr inode)
      : reader_(std::move(target), std::move(inode)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) const override {
    return reader_.Read(offset, n, options, result, scratch, debug);
  }

 private:
  mutable UnsyncedLossReader reader_;
};

class UnsyncedLossSequentialFile : public FSSequentialFile {
 public:
  UnsyncedLossSequentialFile(std::shared_ptr<FileSystem> target, InodePtr inode)
      : reader_(std::move(target), std::move(inode)) {}

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) override {
    IOStatus status = reader_.Read(position_, n, options, result, scratch, debug);
    if (status.ok()) {
      position_ += result->size();
    }
    return status;
  }

  IOStatus Skip(uint64_t n) override {
    position_ += n;
    return IOStatus::OK();
  }

 private:
  UnsyncedLossReader reader_;
  uint64_t position_ = 0;
};

class UnsyncedLossFs : public FileSystemWrapper {
 public:
  UnsyncedLossFs()
      : FileSystemWrapper(FileSystem::Default()), faults_(std::make_shared<Faults>()) {}

  const char* Name() const override { return "UnsyncedLossFs"; }

  Faults& faults() { return *faults_; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result, IODebugContext* debug) override {
    IOStatus status = faults_->Admit("create");
    if (!status.ok()) {
      return status;
    }
    const std::string path = Normalize(name);
    status = target_->FileExists(FolderOf(path), IOOptions(), debug);
    if (!status.ok()) {
      return status;
    }
    auto inode = std::make_shared<Inode>();
    inode->path = path;
    inode->options = options;
    std::lock_guard<std::mutex> guard(mutex_);
    Unlink(path);
    if (target_->FileExists(path, IOOptions(), debug).ok()) {
      // The name is taken for real: creating the file empties that one.
      status = inode->Create(target_.get());
      if (!status.ok()) {
        return status;
      }
    }
    inodes_[path] = inode;
    result->reset(new UnsyncedLossWritableFile(options, target_, faults_, std::move(inode)));
    return IOStatus::OK();
  }

  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result,
                              IODebugContext* debug) override {
    const std::string path = Normalize(name);
    if (!FileExists(path, IOOptions(), debug).ok()) {
      return NewWritableFile(name, options, result, debug);
    }
    IOStatus status = faults_->Admit("reopen");
    if (!status.ok()) {
      return status;
    }
    std::lock_guard<std::mutex> guard(mutex_);
    InodePtr& inode = inodes_[path];
    if (!inode) {
      inode = std::make_shared<Inode>();
      inode->path = path;
      inode->options = options;
      inode->real = true;
      status = target_->GetFileSize(path, IOOptions(), &inode->real_size, debug);
      inode->position = inode->real_size;
    }
    std::lock_guard<std::mutex> inode_guard(inode->mutex);
    if (status.ok() && inode->real && !inode->file) {
      std::unique_ptr<FSWritableFile> file;
      status = target_->ReopenWritableFile(path, options, &file, debug);
      inode->file = std::move(file);
    }
    if (status.ok()) {
      result->reset(new UnsyncedLossWritableFile(options, target_, faults_, inode));
    }
    return status;
  }

  IOStatus ReuseWritableFile(const std::string& name, const std::string& old_name,
                             const FileOptions& options, std::unique_ptr<FSWritableFile>* result,
                             IODebugContext* debug) override {
    IOStatus status = RenameFile(old_name, name, IOOptions(), debug);
    if (!status.ok()) {
      return status;
    }
    const std::string path = Normalize(name);
    auto inode = std::make_shared<Inode>();
    inode->path = path;
    inode->options = options;
    inode->real = true;
    status = target_->GetFileSize(path, IOOptions(), &inode->real_size, debug);
    if (status.ok()) {
      // Opens the file without emptying it, to be written from the start.
      std::unique_ptr<FSWritableFile> file;
      status = target_->ReuseWritableFile(path, path, options, &file, debug);
      inode->file = std::move(file);
    }
    if (status.ok()) {
      std::lock_guard<std::mutex> guard(mutex_);
      inodes_[path] = inode;
      result->reset(new UnsyncedLossWritableFile(options, target_, faults_, std::move(inode)));
    }
    return status;
  }

  IOStatus NewRandomRWFile(const std::string&, const FileOptions&, std::unique_ptr<FSRandomRWFile>*,
                           IODebugContext*) override {
    return IOStatus::NotSupported("the file system with unsynced loss overwrites no files");
  }

  IOStatus NewMemoryMappedFileBuffer(const std::string&,
                                     std::unique_ptr<MemoryMappedFileBuffer>*) override {
    return IOStatus::NotSupported("the file system with unsynced loss maps no files");
  }

  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* result,
                               IODebugContext* debug) override {
    InodePtr inode = Find(Normalize(name));
    if (!inode) {
      return target_->NewRandomAccessFile(name, options, result, debug);
    }
    result->reset(new UnsyncedLossRandomAccessFile(target_, std::move(inode)));
    return IOStatus::OK();
  }

  IOStatus NewSequentialFile(const std::string& name, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* result,
                             IODebugContext* debug) override {
    InodePtr inode = Find(Normalize(name));
    if (!inode) {
      return target_->NewSequentialFile(name, options, result, debug);
    }
    result->reset(new UnsyncedLossSequentialFile(target_, std::move(inode)));
    return IOStatus::OK();
  }

  IOStatus NewDirectory(const std::string& name, const IOOptions& options,
                        std::unique_ptr<FSDirectory>* result, IODebugContext* debug) override;

  IOStatus FileExists(const std::string& name, const IOOptions& options,
                      IODebugContext* debug) override {
    return Find(Normalize(name)) ? IOStatus::OK() : target_->FileExists(name, options, debug);
  }

  IOStatus GetChildren(const std::string& name, const IOOptions& options,
                       std::vector<std::string>* result, IODebugContext* debug) override {
    IOStatus status = target_->GetChildren(name, options, result, debug);
    if (!status.ok()) {
      return status;
    }
    const std::string folder = Normalize(name);
    std::lock_guard<std::mutex> guard(mutex_);
    for (const auto& [path, inode] : inodes_) {
      std::lock_guard<std::mutex> inode_guard(inode->mutex);
      if (!inode->real && FolderOf(path) == folder) {
        result->push_back(path.substr(folder.size() + 1));
      }
    }
    return status;
  }

  IOStatus GetChildrenFileAttributes(const std::string& name, const IOOptions& options,
                                     std::vector<FileAttributes>* result,
                                     IODebugContext* debug) override {
    std::vector<std::string> children;
    IOStatus status = GetChildren(name, options, &children, debug);
    result->clear();
    for (const std::string& child : children) {
      FileAttributes attributes;
      attributes.name = child;
      if (status.ok()) {
        status = GetFileSize(name + "/" + child, options, &attributes.size_bytes, debug);
        result->push_back(std::move(attributes));
      }
    }
    return status;
  }

  IOStatus GetFileSize(const std::string& name, const IOOptions& options, uint64_t* size,
                       IODebugContext* debug) override {
    InodePtr inode = Find(Normalize(name));
    if (!inode) {
      return target_->GetFileSize(name, options, size, debug);
    }
    std::lock_guard<std::mutex> guard(inode->mutex);
    *size = inode->Size();
    return IOStatus::OK();
  }

  IOStatus GetFileModificationTime(const std::string& name, const IOOptions& options, uint64_t* time,
                                   IODebugContext* debug) override {
    InodePtr inode = Find(Normalize(name));
    if (inode) {
      std::lock_guard<std::mutex> guard(inode->mutex);
      if (!inode->real) {
        *time = 0;
        return IOStatus::OK();
      }
    }
    return target_->GetFileModificationTime(name, options, time, debug);
  }

  IOStatus DeleteFile(const std::string& name, const IOOptions& options,
                      IODebugContext* debug) override {
    IOStatus status = faults_->Admit("delete");
    if (!status.ok()) {
      return status;
    }
    const std::string path = Normalize(name);
    std::lock_guard<std::mutex> guard(mutex_);
    const bool was_real = Unlink(path);
    return was_real ? target_->DeleteFile(path, options, debug) : IOStatus::OK();
  }

  IOStatus RenameFile(const std::string& source_name, const std::string& target_name,
                      const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = faults_->Admit("rename");
    if (!status.ok()) {
      return status;
    }
    const std::string source = Normalize(source_name);
    const std::string target = Normalize(target_name);
    std::lock_guard<std::mutex> guard(mutex_);
    status = CreateReal(source);
    if (status.ok()) {
      status = target_->RenameFile(source, target, options, debug);
    }
    if (!status.ok()) {
      return status;
    }
    Unlink(target);
    auto found = inodes_.find(source);
    if (found != inodes_.end()) {
      InodePtr inode = found->second;
      inodes_.erase(found);
      inodes_[target] = inode;
      std::lock_guard<std::mutex> inode_guard(inode->mutex);
      inode->path = target;
    }
    return status;
  }

  IOStatus LinkFile(const std::string& source_name, const std::string& target_name,
                    const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = faults_->Admit("link");
    if (!status.ok()) {
      return status;
    }
    const std::string source = Normalize(source_name);
    const std::string target = Normalize(target_name);
    std::lock_guard<std::mutex> guard(mutex_);
    status = CreateReal(source);
    if (status.ok()) {
      status = target_->LinkFile(source, target, options, debug);
    }
    auto found = inodes_.find(source);
    if (status.ok() && found != inodes_.end()) {
      inodes_[target] = found->second;
    }
    return status;
  }

  IOStatus Truncate(const std::string&, size_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::NotSupported("the file system with unsynced loss truncates no closed files");
  }

  IOStatus CreateDir(const std::string& name, const IOOptions& options,
                     IODebugContext* debug) override {
    IOStatus status = faults_->Admit("create folder");
    return status.ok() ? target_->CreateDir(name, options, debug) : status;
  }

  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions& options,
                              IODebugContext* debug) override {
    IOStatus status = faults_->Admit("create folder");
    return status.ok() ? target_->CreateDirIfMissing(name, options, debug) : status;
  }

  IOStatus DeleteDir(const std::string& name, const IOOptions& options,
                     IODebugContext* debug) override {
    IOStatus status = faults_->Admit("delete folder");
    return status.ok() ? target_->DeleteDir(name, options, debug) : status;
  }

  // No asynchronous reads, no prefetching, no buffers of the file system's own.
  void SupportedOps(int64_t& operations) override { operations = 0; }

  // Makes every file of a folder exist.
  IOStatus SyncFolder(const std::string& folder) {
    IOStatus status = faults_->Admit("sync folder");
    std::lock_guard<std::mutex> guard(mutex_);
    for (const auto& [path, inode] : inodes_) {
      if (status.ok() && FolderOf(path) == folder) {
        std::lock_guard<std::mutex> inode_guard(inode->mutex);
        status = inode->Create(target_.get());
      }
    }
    return status;
  }

 private:
  InodePtr Find(const std::string& path) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = inodes_.find(path);
    return found == inodes_.end() ? nullptr : found->second;
  }

  // Takes a name away from its inode and returns whether a real file has that name. The mutex is held.
  bool Unlink(const std::string& path) {
    auto found = inodes_.find(path);
    if (found == inodes_.end()) {
      return true;
    }
    InodePtr inode = found->second;
    inodes_.erase(found);
    std::lock_guard<std::mutex> guard(inode->mutex);
    inode->unlinked = true;
    return inode->real;
  }

  // Makes one file exist, if it is known and does not. The mutex is held.
  IOStatus CreateReal(const std::string& path) {
    auto found = inodes_.find(path);
    if (found == inodes_.end()) {
      return IOStatus::OK();
    }
    std::lock_guard<std::mutex> guard(found->second->mutex);
    return found->second->Create(target_.get());
  }

  const std::shared_ptr<Faults> faults_;
  std::mutex mutex_;
  // The files created or written through this instance, by their present names.
  std::map<std::string, InodePtr> inodes_;
};

class UnsyncedLossDirectory : public FSDirectory {
 public:
  UnsyncedLossDirectory(UnsyncedLossFs* file_system, std::string folder,
                     std::unique_ptr<FSDirectory> target)
      : file_system_(file_system), folder_(std::move(folder)), target_(std::move(target)) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return file_system_->SyncFolder(folder_);
  }

  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    return target_->Close(options, debug);
  }

  size_t GetUniqueId(char* id, size_t max_size) const override {
    return target_->GetUniqueId(id, max_size);
  }

 private:
  // Outlives every file and folder opened through it, as RocksDB requires of each Env.
  UnsyncedLossFs* const file_system_;
  const std::string folder_;
  const std::unique_ptr<FSDirectory> target_;
};

IOStatus UnsyncedLossFs::NewDirectory(const std::string& name, const IOOptions& options,
                                           std::unique_ptr<FSDirectory>* result,
                                           IODebugContext* debug) {
  std::unique_ptr<FSDirectory> target;
  IOStatus status = target_->NewDirectory(name, options, &target, debug);
  if (status.ok()) {
    result->reset(new UnsyncedLossDirectory(this, Normalize(name), std::move(target)));
  }
  return status;
}

}  // namespace

// The interface to Rust. All functions are noexcept: an exception ends the process here and never
// unwinds into Rust.
extern "C" {

struct millrace_unsynced_loss_t {
  std::shared_ptr<UnsyncedLossFs> file_system;
};

millrace_unsynced_loss_t* millrace_unsynced_loss_create() noexcept {
  return new millrace_unsynced_loss_t{std::make_shared<UnsyncedLossFs>()};
}

void millrace_unsynced_loss_destroy(millrace_unsynced_loss_t* handle) noexcept { delete handle; }

// A new environment that shares ownership of the file system. It is released by rocksdb_env_destroy.
rocksdb_env_t* millrace_unsynced_loss_env(const millrace_unsynced_loss_t* handle) noexcept {
  return new rocksdb_env_t{ROCKSDB_NAMESPACE::NewCompositeEnv(handle->file_system).release(),
                           false};
}

uint64_t millrace_unsynced_loss_operations(const millrace_unsynced_loss_t* handle) noexcept {
  return handle->file_system->faults().operations();
}

void millrace_unsynced_loss_fail_at(const millrace_unsynced_loss_t* handle, uint64_t operation,
                                bool cut_power) noexcept {
  handle->file_system->faults().FailAt(operation, cut_power);
}

}  // extern "C"
