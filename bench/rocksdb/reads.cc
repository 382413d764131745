// What one read costs through RocksDB's FileSystem, on any file system that it knows.
//
//     reads URI PATH READS          one line: nanoseconds a read, and processor time
//
// The file has 256 MiB; reads of 4 KiB come from random multiples of 4 KiB, one after the other.

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "rocksdb/convenience.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

using namespace ROCKSDB_NAMESPACE;

namespace {

constexpr size_t kBytes = size_t{256} << 20;
constexpr size_t kRead = 4096;

void Check(const Status& status) {
  if (!status.ok()) {
    fprintf(stderr, "reads: %s\n", status.ToString().c_str());
    exit(1);
  }
}

double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: reads URI PATH READS\n");
    return 2;
  }
  std::shared_ptr<FileSystem> files = FileSystem::Default();
  if (std::string(argv[1]) != "posix") {
    Check(FileSystem::CreateFromString(ConfigOptions(), argv[1], &files));
  }
  const std::string path = argv[2];
  const long reads = atol(argv[3]);
  {
    std::unique_ptr<FSWritableFile> file;
    Check(files->NewWritableFile(path, FileOptions(), &file, nullptr));
    std::string chunk(1 << 20, '\0');
    std::mt19937_64 random(1);
    for (size_t written = 0; written < kBytes; written += chunk.size()) {
      for (size_t i = 0; i < chunk.size(); i += 8) {
        const uint64_t word = random();
        memcpy(&chunk[i], &word, 8);
      }
      Check(file->Append(chunk, IOOptions(), nullptr));
    }
    Check(file->Fsync(IOOptions(), nullptr));
    Check(file->Close(IOOptions(), nullptr));
  }
  std::unique_ptr<FSRandomAccessFile> file;
  Check(files->NewRandomAccessFile(path, FileOptions(), &file, nullptr));
  std::mt19937_64 random(2);
  std::vector<char> scratch(kRead);
  Slice result;
  const double cpu = ProcessorSeconds();
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < reads; ++i) {
    const uint64_t offset = random() % (kBytes / kRead) * kRead;
    Check(file->Read(offset, kRead, IOOptions(), &result, scratch.data(), nullptr));
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  printf("%.0f ns a read, %.0f ns of the processor\n", time.count() / double(reads) * 1e9,
         (ProcessorSeconds() - cpu) / double(reads) * 1e9);
  file.reset();
  Check(files->DeleteFile(path, IOOptions(), nullptr));
  return 0;
}
