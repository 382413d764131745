// Codes of millrace_blobfs.h as RocksDB's statuses.

#pragma once

#include <cstdint>
#include <string>

#include "millrace_blobfs.h"
#include "rocksdb/io_status.h"

namespace millrace {

// The status for what a function returned while doing what `doing` says with the file `path`.
//
//   missing                    PathNotFound: RocksDB asks for the subcode to tell a gap from a failure.
//   full                       NoSpace, which is retryable: RocksDB goes on when files were deleted.
//   poisoned, panicked         IOFenced: RocksDB stops writing for good and does not try again.
//   no memory for the device   IOError, retryable.
//   damaged                    Corruption.
//   the rest                   IOError, which is not retryable: the device failed.
rocksdb::IOStatus StatusOf(int32_t code, const millrace_blobfs_error& error, const char* doing,
                           const std::string& path);

}  // namespace millrace
