// What Rust calls to give RocksDB a volume.

#include <memory>
#include <string>
#include <utility>

#include "blobfs_fs.h"
#include "millrace_blobfs.h"
#include "rocksdb/env.h"
#include "rocksdb_env.h"

// A new environment on the volume, whose handle it takes over; its root is the folder of that name. It is released
// by rocksdb_env_destroy. An exception ends the process here and never unwinds into Rust.
extern "C" rocksdb_env_t* millrace_rocksdb_blobfs_env(millrace_blobfs_volume* volume, const char* root,
                                                      size_t root_length) noexcept {
  auto shared = std::make_shared<millrace::BlobfsVolume>(volume);
  auto file_system = std::make_shared<millrace::BlobfsFileSystem>(std::move(shared),
                                                                  std::string(root, root_length));
  return new rocksdb_env_t{rocksdb::NewCompositeEnv(file_system).release(), false};
}
