/*
 * Millrace's file system in the process, as plain C.
 *
 * A volume is a file system on a block device that this process drives by itself. It is opened once and lives
 * until it is closed; everything else hangs on it.
 *
 * Results. Every function that can fail returns a code, MILLRACE_BLOBFS_OK or what went wrong. Its last argument
 * is a structure of the caller's, or null; when the code is not OK it receives the code and a text for people.
 * Outputs are written only when the code is OK. Nothing is thrown, and nothing unwinds out of a function: a
 * failure of the library itself comes back as MILLRACE_BLOBFS_PANIC, and from then on the volume refuses
 * everything with MILLRACE_BLOBFS_POISONED but to be closed.
 *
 * Ownership. A function that gives a handle through a pointer to a pointer gives it to the caller, which passes it
 * to the function named at its type once, and never uses it afterwards. Freeing null does nothing. Handles keep
 * alive what they need: a volume may be closed before its files. Memory is never allocated on one side and freed
 * on the other; what is passed in is not kept after the call. Texts and buffers are a pointer and a length; the
 * pointer may be null if the length is 0.
 *
 * Threads. A volume, a file and a lock may be used by any number of threads at once. A read and a listing belong
 * to one thread at a time. A thread that reads or syncs drives the device itself and is back when it is done.
 *
 * Paths are UTF-8 with '/' between the names, absolute or relative to the root, which is the same. Empty names
 * and "." are ignored, ".." leads to the directory above. Times are milliseconds since 1970.
 */
#ifndef MILLRACE_BLOBFS_H
#define MILLRACE_BLOBFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a call. */
enum millrace_blobfs_code {
  MILLRACE_BLOBFS_OK = 0,
  /* There is no file or directory of this name. */
  MILLRACE_BLOBFS_NOT_FOUND = 1,
  /* A file or directory of this name exists. */
  MILLRACE_BLOBFS_EXISTS = 2,
  /* A directory is needed, and this is a file. */
  MILLRACE_BLOBFS_NOT_DIRECTORY = 3,
  /* A file is needed, and this is a directory. */
  MILLRACE_BLOBFS_IS_DIRECTORY = 4,
  /* The directory has entries. */
  MILLRACE_BLOBFS_NOT_EMPTY = 5,
  /* The path cannot name a file. */
  MILLRACE_BLOBFS_INVALID_PATH = 6,
  /* Null pointer, invalid length, or another invalid argument. */
  MILLRACE_BLOBFS_INVALID = 7,
  /* The volume is full. */
  MILLRACE_BLOBFS_NO_SPACE = 8,
  /* The device or the file is locked by another holder. */
  MILLRACE_BLOBFS_IN_USE = 9,
  /* The volume is mounted read-only. */
  MILLRACE_BLOBFS_READ_ONLY = 10,
  /* An earlier write failed. Nothing is acknowledged any more; the volume can be read. */
  MILLRACE_BLOBFS_POISONED = 11,
  /* The device reported an I/O error. */
  MILLRACE_BLOBFS_IO = 12,
  /* What the device holds is not what was written. */
  MILLRACE_BLOBFS_CORRUPTION = 13,
  /* The device holds no volume. */
  MILLRACE_BLOBFS_NOT_A_VOLUME = 14,
  /* The volume was written by a later version, which says that this one cannot use it. */
  MILLRACE_BLOBFS_NEWER_FORMAT = 15,
  /* Memory for the device could not be had. */
  MILLRACE_BLOBFS_MEMORY = 16,
  /* The device, or the volume, cannot do it. */
  MILLRACE_BLOBFS_UNSUPPORTED = 17,
  /* The library failed. The volume is poisoned. */
  MILLRACE_BLOBFS_PANIC = 18,
};

/* Room for what went wrong. */
typedef struct millrace_blobfs_error {
  /* One of millrace_blobfs_code. */
  int32_t code;
  /* UTF-8, ended by a zero byte; a longer text is cut. */
  char message[508];
} millrace_blobfs_error;

/* A mounted volume: millrace_blobfs_close. */
typedef struct millrace_blobfs_volume millrace_blobfs_volume;
/* An open file: millrace_blobfs_file_close. */
typedef struct millrace_blobfs_file millrace_blobfs_file;
/* A read under way: millrace_blobfs_read_free. */
typedef struct millrace_blobfs_read millrace_blobfs_read;
/* A lock that is held: millrace_blobfs_unlock. */
typedef struct millrace_blobfs_lock millrace_blobfs_lock;
/* What a directory held: millrace_blobfs_listing_free. */
typedef struct millrace_blobfs_listing millrace_blobfs_listing;

/* ---- Volumes ---- */

enum millrace_blobfs_format {
  /* A device without a volume is refused. */
  MILLRACE_BLOBFS_FORMAT_NEVER = 0,
  /* A device that holds nothing gets a volume; one that holds something else is refused. */
  MILLRACE_BLOBFS_FORMAT_BLANK = 1,
  /* The device gets a new volume, whatever it holds. */
  MILLRACE_BLOBFS_FORMAT_ALWAYS = 2,
};

/* How a volume is opened. All zeros is good. */
typedef struct millrace_blobfs_open_options {
  /* One of millrace_blobfs_format. */
  uint32_t format;
  /* If not 0, nothing is written to the device. */
  uint32_t read_only;
  /* Memory for data on its way; 0: the library's choice. */
  uint64_t arena_bytes;
} millrace_blobfs_open_options;

/*
 * Opens the device that `spec` names ("mem:256M", "file:/path", "nvme:ADDRESS/NAMESPACE", "vfio-user:SOCKET") and
 * mounts the volume on it. A device has one owner: it is IN_USE while any process has it open. `options` may be
 * null.
 */
int32_t millrace_blobfs_open(const char* spec, size_t spec_length,
                             const millrace_blobfs_open_options* options,
                             millrace_blobfs_volume** volume, millrace_blobfs_error* error);

/*
 * Puts everything on the medium and marks the volume as unmounted in order: IN_USE while a file is open. Whatever
 * is called later on the volume fails, but for closing it.
 */
int32_t millrace_blobfs_unmount(const millrace_blobfs_volume* volume, millrace_blobfs_error* error);

/* Gives the handle back. With the last handle of the volume and its files the volume is unmounted, if it is not. */
void millrace_blobfs_close(millrace_blobfs_volume* volume);

typedef struct millrace_blobfs_space {
  uint64_t total_bytes;
  uint64_t free_bytes;
  uint64_t metadata_bytes;
  uint64_t files;
} millrace_blobfs_space;

int32_t millrace_blobfs_get_space(const millrace_blobfs_volume* volume, millrace_blobfs_space* space,
                                  millrace_blobfs_error* error);

/* What was done since the volume was mounted. */
typedef struct millrace_blobfs_counters {
  /* Reads of files that went to the device. */
  uint64_t reads;
  /* Bytes that these asked for. */
  uint64_t read_bytes;
  /* Appends and other writes to files. */
  uint64_t writes;
  /* Bytes of files written to their place, in whole blocks. */
  uint64_t write_bytes;
  /* Syncs of files and directories. */
  uint64_t syncs;
  /* Transactions written to the journal. */
  uint64_t transactions;
  /* Bytes of them, in whole blocks. */
  uint64_t journal_bytes;
  /* Flushes and write-through requests sent to the device. */
  uint64_t flushes;
  /* Checkpoints of the metadata. */
  uint64_t checkpoints;
  /* Bytes of these. */
  uint64_t checkpoint_bytes;
  /* Units deallocated. */
  uint64_t discarded_units;
} millrace_blobfs_counters;

int32_t millrace_blobfs_get_counters(const millrace_blobfs_volume* volume,
                                     millrace_blobfs_counters* counters, millrace_blobfs_error* error);

/* Bytes of a logical block of the device; 0 for null. */
uint32_t millrace_blobfs_block_bytes(const millrace_blobfs_volume* volume);

/* ---- Names ---- */

enum millrace_blobfs_kind {
  MILLRACE_BLOBFS_FILE = 0,
  MILLRACE_BLOBFS_DIRECTORY = 1,
};

typedef struct millrace_blobfs_status {
  /* Names the file or directory in this volume for ever; never given to another. */
  uint64_t id;
  uint64_t size;
  uint64_t allocated_bytes;
  uint64_t modified_ms;
  uint64_t links;
  /* One of millrace_blobfs_kind. */
  uint32_t kind;
} millrace_blobfs_status;

int32_t millrace_blobfs_get_status(const millrace_blobfs_volume* volume, const char* path,
                                   size_t path_length, millrace_blobfs_status* status,
                                   millrace_blobfs_error* error);

int32_t millrace_blobfs_set_modified(const millrace_blobfs_volume* volume, const char* path,
                                     size_t path_length, uint64_t modified_ms,
                                     millrace_blobfs_error* error);

/* Changes of names happen in the order of the calls, and each as a whole or not at all. They are on the medium
 * after any sync, of a file or of the volume, that began later. */

/* Gives `from` the name `to`, which may be the name of a file, or of an empty directory, until then. */
int32_t millrace_blobfs_rename(const millrace_blobfs_volume* volume, const char* from,
                               size_t from_length, const char* to, size_t to_length,
                               millrace_blobfs_error* error);

/* Gives a file a second name. */
int32_t millrace_blobfs_link(const millrace_blobfs_volume* volume, const char* existing,
                             size_t existing_length, const char* added, size_t added_length,
                             millrace_blobfs_error* error);

/* Takes a file's name away. Without any name it is gone when nobody has it open. */
int32_t millrace_blobfs_remove(const millrace_blobfs_volume* volume, const char* path,
                               size_t path_length, millrace_blobfs_error* error);

int32_t millrace_blobfs_create_dir(const millrace_blobfs_volume* volume, const char* path,
                                   size_t path_length, millrace_blobfs_error* error);

/* Removes an empty directory. */
int32_t millrace_blobfs_remove_dir(const millrace_blobfs_volume* volume, const char* path,
                                   size_t path_length, millrace_blobfs_error* error);

/* Puts all changes of names so far on the medium. */
int32_t millrace_blobfs_sync(const millrace_blobfs_volume* volume, millrace_blobfs_error* error);

/* Locks a file of this name, which is made if need be, against other callers in this process: IN_USE if it is
 * locked. Other processes are kept away from the device as a whole. */
int32_t millrace_blobfs_lock_file(const millrace_blobfs_volume* volume, const char* path,
                                  size_t path_length, millrace_blobfs_lock** lock,
                                  millrace_blobfs_error* error);

void millrace_blobfs_unlock(millrace_blobfs_lock* lock);

int32_t millrace_blobfs_read_dir(const millrace_blobfs_volume* volume, const char* path,
                                 size_t path_length, millrace_blobfs_listing** listing,
                                 millrace_blobfs_error* error);

typedef struct millrace_blobfs_entry {
  /* The listing's: valid until it is freed. Not ended by a zero byte. */
  const char* name;
  size_t name_length;
  uint64_t id;
  /* One of millrace_blobfs_kind. */
  uint32_t kind;
} millrace_blobfs_entry;

/* Entries in the listing; 0 for null. */
size_t millrace_blobfs_listing_length(const millrace_blobfs_listing* listing);

/* The entry with this number, counted from 0. */
int32_t millrace_blobfs_listing_get(const millrace_blobfs_listing* listing, size_t number,
                                    millrace_blobfs_entry* entry, millrace_blobfs_error* error);

void millrace_blobfs_listing_free(millrace_blobfs_listing* listing);

/* ---- Files ---- */

enum millrace_blobfs_open_flag {
  /* Makes the file if there is none. */
  MILLRACE_BLOBFS_CREATE = 1,
  /* Makes the file; fails if there is one. */
  MILLRACE_BLOBFS_CREATE_NEW = 2,
  /* Empties the file. */
  MILLRACE_BLOBFS_TRUNCATE = 4,
};

/* Opens a file to read and write. `flags` are of millrace_blobfs_open_flag. */
int32_t millrace_blobfs_file_open(const millrace_blobfs_volume* volume, const char* path,
                                  size_t path_length, uint32_t flags, millrace_blobfs_file** file,
                                  millrace_blobfs_error* error);

/* Gives the handle back. What was written stays readable; what was not synced is not on the medium for sure. */
void millrace_blobfs_file_close(millrace_blobfs_file* file);

/* Reads into `out`; less than `length` bytes only at the end of the file. */
int32_t millrace_blobfs_read_at(const millrace_blobfs_file* file, uint64_t offset, char* out,
                                size_t length, size_t* read, millrace_blobfs_error* error);

/* One of several reads. */
typedef struct millrace_blobfs_part {
  uint64_t offset;
  char* out;
  size_t length;
  /* Output: the bytes read, less than `length` only at the end of the file. */
  size_t read;
  /* Output: what became of this read. */
  int32_t code;
} millrace_blobfs_part;

/* Reads several parts at once, which must not share memory. The code says whether they were tried at all; `error`
 * also receives the text of the first part that failed. */
int32_t millrace_blobfs_read_many(const millrace_blobfs_file* file, millrace_blobfs_part* parts,
                                  size_t count, millrace_blobfs_error* error);

/* Begins to read `length` bytes from `offset` on ahead of a sequential reader that uses
 * millrace_blobfs_read_at on this handle; calling it again for the bytes that follow goes on with it. *begun is 0 when
 * nothing is read ahead: another part of the file is for another reader, all buffers are in use, or the bytes are not
 * on the device yet. For files that do not change any more: such reads give the bytes that the file held when this was
 * called. */
int32_t millrace_blobfs_read_ahead(const millrace_blobfs_file* file, uint64_t offset, size_t length,
                                   uint32_t* begun, millrace_blobfs_error* error);

/* Begins to read; the memory is the library's. */
int32_t millrace_blobfs_read_start(const millrace_blobfs_file* file, uint64_t offset, size_t length,
                                   millrace_blobfs_read** read, millrace_blobfs_error* error);

/* Whether the read is done (*done = 1) or not yet (0). A read that failed is done. */
int32_t millrace_blobfs_read_poll(millrace_blobfs_read* read, uint32_t* done,
                                  millrace_blobfs_error* error);

/* Waits for the read. `*data` is the library's and valid until the read is freed. */
int32_t millrace_blobfs_read_wait(millrace_blobfs_read* read, const char** data, size_t* length,
                                  millrace_blobfs_error* error);

/* Gives the read and its data back, and aborts it if it is under way. */
void millrace_blobfs_read_free(millrace_blobfs_read* read);

/* Adds to the end of the file. Readers see it at once; the medium has it after a sync. */
int32_t millrace_blobfs_append(const millrace_blobfs_file* file, const char* data, size_t length,
                               millrace_blobfs_error* error);

/* Writes at a place; between the end of the file and it zeros appear. */
int32_t millrace_blobfs_write_at(const millrace_blobfs_file* file, uint64_t offset, const char* data,
                                 size_t length, millrace_blobfs_error* error);

/* Makes the file shorter, or longer by zeros. */
int32_t millrace_blobfs_truncate(const millrace_blobfs_file* file, uint64_t size,
                                 millrace_blobfs_error* error);

/* Sees to it that the file can grow to so many bytes: NO_SPACE now rather than later. */
int32_t millrace_blobfs_reserve(const millrace_blobfs_file* file, uint64_t bytes,
                                millrace_blobfs_error* error);

/* Begins to write what is whole to the device. Promises nothing. */
int32_t millrace_blobfs_write_behind(const millrace_blobfs_file* file, millrace_blobfs_error* error);

/* Puts the file's bytes, its size and all changes of names so far on the medium. */
int32_t millrace_blobfs_file_sync(const millrace_blobfs_file* file, millrace_blobfs_error* error);

/* The size, with what is not synced; 0 for null. */
uint64_t millrace_blobfs_file_size(const millrace_blobfs_file* file);

int32_t millrace_blobfs_file_status(const millrace_blobfs_file* file, millrace_blobfs_status* status,
                                    millrace_blobfs_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MILLRACE_BLOBFS_H */
