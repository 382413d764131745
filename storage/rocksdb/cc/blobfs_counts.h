// What a process did through the file system, for tests that have to show that they used it.

#pragma once

#include <atomic>
#include <cstdint>

namespace millrace {

struct BlobfsCounts {
  std::atomic<uint64_t> files_created{0};
  std::atomic<uint64_t> appends{0};
  std::atomic<uint64_t> bytes_written{0};
  std::atomic<uint64_t> syncs{0};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> bytes_read{0};
};

// Null unless somebody wants to know. Set once, before the first file is opened.
extern BlobfsCounts* blobfs_counts;

inline void CountCreation() {
  if (blobfs_counts != nullptr) {
    blobfs_counts->files_created.fetch_add(1, std::memory_order_relaxed);
  }
}

inline void CountWrite(uint64_t bytes) {
  if (blobfs_counts != nullptr) {
    blobfs_counts->appends.fetch_add(1, std::memory_order_relaxed);
    blobfs_counts->bytes_written.fetch_add(bytes, std::memory_order_relaxed);
  }
}

inline void CountSync() {
  if (blobfs_counts != nullptr) {
    blobfs_counts->syncs.fetch_add(1, std::memory_order_relaxed);
  }
}

inline void CountRead(uint64_t bytes) {
  if (blobfs_counts != nullptr) {
    blobfs_counts->reads.fetch_add(1, std::memory_order_relaxed);
    blobfs_counts->bytes_read.fetch_add(bytes, std::memory_order_relaxed);
  }
}

}  // namespace millrace
