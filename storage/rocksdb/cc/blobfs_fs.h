// RocksDB's file system on a volume of blobfs.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "blobfs_files.h"
#include "rocksdb/file_system.h"

namespace millrace {

// Any number of these may share a volume. Each is a thin handle: what is open or locked belongs to the volume, and
// files outlive the file system that opened them. One that has a root shows the volume from that folder on: its
// "/a" is the volume's "root/a", and ".." may lead out of the root.
//
// What is fixed by the volume and not asked of RocksDB's options: reads and writes go to the device directly, a
// file that is reused is emptied (a sync of a file that grows is one write to the journal, so overwriting
// an old log gains nothing), memory mapping is served by reading the file as a whole, and mapping for writes is not
// there.
class BlobfsFileSystem : public rocksdb::FileSystem {
 public:
  // An empty root is that of the volume.
  BlobfsFileSystem(std::shared_ptr<BlobfsVolume> volume, std::string root)
      : volume_(std::move(volume)), root_(std::move(root)) {}

  static const char* kClassName() { return "MillraceFileSystem"; }
  const char* Name() const override { return kClassName(); }

  IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result,
                             IODebugContext*) override;
  IOStatus NewRandomAccessFile(const std::string& path, const rocksdb::FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext*) override;
  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext*) override;
  IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* result,
                              IODebugContext*) override;
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                             const rocksdb::FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* result,
                             IODebugContext*) override;
  IOStatus NewRandomRWFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* result,
                           IODebugContext*) override;
  IOStatus NewDirectory(const std::string& path, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) override;

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override;
  IOStatus GetChildren(const std::string& path, const IOOptions& options,
                       std::vector<std::string>* result, IODebugContext*) override;
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override;
  IOStatus Truncate(const std::string& path, size_t size, const IOOptions&,
                    IODebugContext*) override;
  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override;
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override;
  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override;
  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size,
                       IODebugContext*) override;
  IOStatus GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* seconds,
                                   IODebugContext*) override;
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override;
  IOStatus LinkFile(const std::string& existing, const std::string& added, const IOOptions&,
                    IODebugContext*) override;
  IOStatus NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count,
                        IODebugContext*) override;
  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions&,
                        bool* same, IODebugContext*) override;
  IOStatus LockFile(const std::string& path, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override;
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override;

  // $TEST_TMPDIR, or a name of its own for each user, as on POSIX; made with its parents.
  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override;
  // There is no current directory: a relative path begins at the root.
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* absolute,
                           IODebugContext*) override;
  IOStatus GetFreeSpace(const std::string& path, const IOOptions&, uint64_t* bytes,
                        IODebugContext*) override;
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_directory,
                       IODebugContext*) override;

  // What is appended is collected in the volume: RocksDB need not do it before.
  rocksdb::FileOptions OptimizeForLogWrite(const rocksdb::FileOptions& options,
                                           const rocksdb::DBOptions& database) const override;
  rocksdb::FileOptions OptimizeForManifestWrite(const rocksdb::FileOptions& options) const override;
  rocksdb::FileOptions OptimizeForCompactionTableWrite(
      const rocksdb::FileOptions& options,
      const rocksdb::ImmutableDBOptions& database) const override;

  IOStatus Poll(std::vector<void*>& io_handles, size_t min_completions) override;
  IOStatus AbortIO(std::vector<void*>& io_handles) override;
  void SupportedOps(int64_t& operations) override;

  // Makes a directory and those above it.
  IOStatus CreateDirs(const std::string& path);

 private:
  // The volume's name for a path.
  std::string Full(const std::string& path) const;
  IOStatus Stat(const std::string& full, const char* doing, millrace_blobfs_status* status) const;
  IOStatus OpenWritable(const std::string& full, uint32_t flags, const rocksdb::FileOptions& options,
                        std::unique_ptr<rocksdb::FSWritableFile>* result);

  const std::shared_ptr<BlobfsVolume> volume_;
  const std::string root_;
};

}  // namespace millrace
