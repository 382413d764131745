#include "blobfs_status.h"

namespace millrace {

using rocksdb::IOStatus;

IOStatus StatusOf(int32_t code, const millrace_blobfs_error& error, const char* doing,
                  const std::string& path) {
  if (code == MILLRACE_BLOBFS_OK) {
    return IOStatus::OK();
  }
  const std::string context = std::string("while ") + doing + ": " + path;
  const rocksdb::Slice message(error.message);
  IOStatus status;
  switch (code) {
    case MILLRACE_BLOBFS_NOT_FOUND:
      return IOStatus::PathNotFound(context, message);
    case MILLRACE_BLOBFS_NO_SPACE:
      status = IOStatus::NoSpace(context, message);
      status.SetRetryable(true);
      return status;
    case MILLRACE_BLOBFS_POISONED:
    case MILLRACE_BLOBFS_PANIC:
      return IOStatus::IOFenced(context, message);
    case MILLRACE_BLOBFS_MEMORY:
      status = IOStatus::IOError(context, message);
      status.SetRetryable(true);
      return status;
    case MILLRACE_BLOBFS_CORRUPTION:
      return IOStatus::Corruption(context, message);
    case MILLRACE_BLOBFS_INVALID:
    case MILLRACE_BLOBFS_INVALID_PATH:
      return IOStatus::InvalidArgument(context, message);
    case MILLRACE_BLOBFS_UNSUPPORTED:
      return IOStatus::NotSupported(context, message);
    default:
      return IOStatus::IOError(context, message);
  }
}

}  // namespace millrace
