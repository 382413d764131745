// RocksDB's C interface keeps the contents of this type in its own source file, c.cc.

#pragma once

#include "rocksdb/env.h"

struct rocksdb_env_t {
  // Deleted by rocksdb_env_destroy unless `is_default` is set.
  ROCKSDB_NAMESPACE::Env* rep;
  bool is_default;
};
