// Volumes by URI, for programs that choose their file system by text: RocksDB's tests and tools.
//
//     millrace://SPEC        SPEC as in millrace_blobfs_open: mem:1G, file:/path/disk.img, ...
//
// The device is formatted if it holds nothing. A process mounts a device once, at the first use of its URI, and
// keeps it until it ends: file systems that are made and destroyed in between, and any number at once, see the
// same files. $TEST_TMPDIR, where RocksDB's tests keep their databases, is made in each volume.
//
// With $MILLRACE_FS_COUNT, a line that says how much the process did through such file systems is appended to the
// file of that name when the process ends in order.
//
// This file registers the factory when it is linked. It must be given to the linker as an object: nothing refers
// to it.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "blobfs_counts.h"
#include "blobfs_fs.h"
#include "blobfs_status.h"
#include "rocksdb/utilities/object_registry.h"

namespace millrace {
namespace {

using rocksdb::FileSystem;
using rocksdb::ObjectLibrary;

constexpr char kScheme[] = "millrace";
constexpr char kSeparator[] = "://";

// The mounted volumes by their specs. Never destroyed: RocksDB's threads may outlive static objects.
struct Mounts {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<BlobfsVolume>> by_spec;
  // Whether what is due at the end was arranged.
  bool prepared = false;
};

Mounts& AllMounts() {
  static Mounts* mounts = new Mounts;
  return *mounts;
}

void WriteCounts() {
  const char* path = getenv("MILLRACE_FS_COUNT");
  if (blobfs_counts == nullptr || path == nullptr) {
    return;
  }
  char line[256];
  const int length = snprintf(
      line, sizeof(line),
      "files_created=%llu appends=%llu bytes_written=%llu syncs=%llu reads=%llu bytes_read=%llu\n",
      static_cast<unsigned long long>(blobfs_counts->files_created.load()),
      static_cast<unsigned long long>(blobfs_counts->appends.load()),
      static_cast<unsigned long long>(blobfs_counts->bytes_written.load()),
      static_cast<unsigned long long>(blobfs_counts->syncs.load()),
      static_cast<unsigned long long>(blobfs_counts->reads.load()),
      static_cast<unsigned long long>(blobfs_counts->bytes_read.load()));
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, line, static_cast<size_t>(length)) != length) {
    perror(path);
  }
  if (file >= 0) {
    close(file);
  }
}

// Runs while other threads may still be at work. A volume with open files cannot be unmounted in order; it is
// synced, and recovered by the next mount.
void AtExit() {
  WriteCounts();
  Mounts& mounts = AllMounts();
  std::lock_guard<std::mutex> guard(mounts.mutex);
  for (const auto& [spec, volume] : mounts.by_spec) {
    millrace_blobfs_error error;
    int32_t code = millrace_blobfs_unmount(volume->handle(), &error);
    if (code == MILLRACE_BLOBFS_IN_USE) {
      code = millrace_blobfs_sync(volume->handle(), &error);
    }
    // A volume that failed before has said so where it failed.
    if (code != MILLRACE_BLOBFS_OK && code != MILLRACE_BLOBFS_POISONED) {
      fprintf(stderr, "unmounting %s: %s\n", spec.c_str(), error.message);
    }
  }
}

// The volume of a spec, mounted if it is not. The mutex is held.
rocksdb::IOStatus Mount(Mounts& mounts, const std::string& spec,
                        std::shared_ptr<BlobfsVolume>* result) {
  auto found = mounts.by_spec.find(spec);
  if (found != mounts.by_spec.end()) {
    *result = found->second;
    return rocksdb::IOStatus::OK();
  }
  if (!mounts.prepared) {
    mounts.prepared = true;
    if (getenv("MILLRACE_FS_COUNT") != nullptr) {
      blobfs_counts = new BlobfsCounts;
    }
    atexit(AtExit);
  }
  millrace_blobfs_open_options options = {MILLRACE_BLOBFS_FORMAT_BLANK, 0, 0};
  millrace_blobfs_error error;
  millrace_blobfs_volume* handle = nullptr;
  const int32_t code = millrace_blobfs_open(spec.data(), spec.size(), &options, &handle, &error);
  if (code != MILLRACE_BLOBFS_OK) {
    return StatusOf(code, error, "mounting", spec);
  }
  auto volume = std::make_shared<BlobfsVolume>(handle);
  mounts.by_spec[spec] = volume;
  *result = std::move(volume);
  const char* test_directory = getenv("TEST_TMPDIR");
  if (test_directory != nullptr && test_directory[0] != '\0') {
    return BlobfsFileSystem(*result, "").CreateDirs(test_directory);
  }
  return rocksdb::IOStatus::OK();
}

FileSystem* Make(const std::string& uri, std::unique_ptr<FileSystem>* guard, std::string* message) {
  const std::string spec = uri.substr(sizeof(kScheme) - 1 + sizeof(kSeparator) - 1);
  Mounts& mounts = AllMounts();
  std::lock_guard<std::mutex> lock(mounts.mutex);
  std::shared_ptr<BlobfsVolume> volume;
  rocksdb::IOStatus status = Mount(mounts, spec, &volume);
  if (!status.ok()) {
    *message = status.ToString();
    return nullptr;
  }
  guard->reset(new BlobfsFileSystem(std::move(volume), ""));
  return guard->get();
}

const bool registered = [] {
  ObjectLibrary::Default()->AddFactory<FileSystem>(
      ObjectLibrary::PatternEntry(kScheme, false).AddSeparator(kSeparator), Make);
  return true;
}();

}  // namespace
}  // namespace millrace
