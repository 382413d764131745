// Tells RocksDB's tests that reads are asynchronous.
//
// The tests of read-ahead count asynchronous reads only when they have seen RocksDB's own io_uring at work, by a
// sync point in its code, and otherwise take each asynchronous read for a mistake. Every test program is linked
// with --wrap, so that read-ahead begins its asynchronous reads here, and the point is reported for each that the
// file system accepts.

#include <functional>
#include <memory>

#include "rocksdb/file_system.h"
#include "test_util/sync_point.h"

namespace rocksdb {
class RandomAccessFileReader;
}

using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::RandomAccessFileReader;

#define READ_ASYNC                                                                               \
  "_ZN7rocksdb22RandomAccessFileReader9ReadAsyncERNS_13FSReadRequestERKNS_9IOOptionsESt8function" \
  "IFvS2_PvEES7_PS7_PS6_IFvS7_EEPSt10unique_ptrIvSC_EPNS_14IODebugContextE"

using Callback = std::function<void(FSReadRequest&, void*)>;
using Deleter = std::function<void(void*)>;
using AlignedBuffer = std::unique_ptr<void, Deleter>;

// A member function is called like a function whose first argument is the object.
IOStatus Original(RandomAccessFileReader* reader, FSReadRequest& request, const IOOptions& options,
                  Callback done, void* done_argument, void** handle, Deleter* delete_handle,
                  AlignedBuffer* buffer, IODebugContext* context) asm("__real_" READ_ASYNC);
IOStatus Replaced(RandomAccessFileReader* reader, FSReadRequest& request, const IOOptions& options,
                  Callback done, void* done_argument, void** handle, Deleter* delete_handle,
                  AlignedBuffer* buffer, IODebugContext* context) asm("__wrap_" READ_ASYNC);

IOStatus Replaced(RandomAccessFileReader* reader, FSReadRequest& request, const IOOptions& options,
                  Callback done, void* done_argument, void** handle, Deleter* delete_handle,
                  AlignedBuffer* buffer, IODebugContext* context) {
  IOStatus status = Original(reader, request, options, std::move(done), done_argument, handle,
                             delete_handle, buffer, context);
  if (status.ok()) {
    TEST_SYNC_POINT("UpdateResults::io_uring_result");
  }
  return status;
}
