// Makes a test program's default file system another one.
//
// Some of RocksDB's tests are written for FileSystem::Default() and cannot be told otherwise. Every program is
// linked with --wrap, so that calls of FileSystem::Default() from other sources than its own come here. With
// MILLRACE_DEFAULT_FS=URI in the environment they get the file system that is registered for the URI, else
// RocksDB's. A file system that asks for the default while it is made gets RocksDB's.
//
// realpath comes here too: RocksDB's ChrootFileSystem asks the host by it whether a path exists.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "rocksdb/file_system.h"
#include "rocksdb/status.h"
#include "rocksdb/utilities/object_registry.h"

using ROCKSDB_NAMESPACE::FileSystem;
using ROCKSDB_NAMESPACE::IOOptions;
using ROCKSDB_NAMESPACE::ObjectRegistry;
using ROCKSDB_NAMESPACE::Status;

// The linker's names for what was replaced and for its replacement.
std::shared_ptr<FileSystem> OriginalDefault() asm("__real__ZN7rocksdb10FileSystem7DefaultEv");
std::shared_ptr<FileSystem> ReplacedDefault() asm("__wrap__ZN7rocksdb10FileSystem7DefaultEv");
extern "C" char* __real_realpath(const char* path, char* resolved);
extern "C" char* __wrap_realpath(const char* path, char* resolved);

namespace {

const char* Uri() { return std::getenv("MILLRACE_DEFAULT_FS"); }

std::shared_ptr<FileSystem> Make() {
  std::shared_ptr<FileSystem> made;
  // Not FileSystem::CreateFromString: that asks for the default environment, which waits for this.
  const Status status = ObjectRegistry::Default()->NewSharedObject<FileSystem>(Uri(), &made);
  if (!status.ok()) {
    std::fprintf(stderr, "MILLRACE_DEFAULT_FS=%s: %s\n", Uri(), status.ToString().c_str());
    std::abort();
  }
  return made;
}

}  // namespace

std::shared_ptr<FileSystem> ReplacedDefault() {
  thread_local bool making = false;
  if (Uri() == nullptr || making) {
    return OriginalDefault();
  }
  // Never destroyed, like RocksDB's own: threads may use it while the process ends.
  static const auto* const replaced = [] {
    making = true;
    auto* made = new std::shared_ptr<FileSystem>(Make());
    making = false;
    return made;
  }();
  return *replaced;
}

// What exists on the file system is resolved by its name alone, for there are no symbolic links.
char* __wrap_realpath(const char* path, char* resolved) {
  if (Uri() == nullptr || resolved != nullptr ||
      !ReplacedDefault()->FileExists(path, IOOptions(), nullptr).ok()) {
    return __real_realpath(path, resolved);
  }
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') {
    normal.pop_back();
  }
  return strdup(normal.c_str());
}
