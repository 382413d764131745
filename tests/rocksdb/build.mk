# Compiles RocksDB's own test programs from the sources of librocksdb-sys. scripts/rocksdb-tests runs it in its
# folder of the cache and gives it
#
#   CRATE      the sources of librocksdb-sys
#   LZ4, ZSTD  the sources of lz4-sys and zstd-sys
#   TESTS      the test programs to be linked, each named by its main file's path without .cc
#   MEASURED   the folder with the sources of what is measured
#
# What exists is never made again: the folder's name stands for the sources, the compilers and the flags. Every
# file appears by a rename, so that an interrupted run is continued by the next.
#
# Flavours: `debug` holds the library with its assertions and sync points, and what the tests need; `release`
# holds what db_bench needs beyond the archive that the server is linked with, compiled the same way.

SHELL := /bin/bash
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

rocksdb := $(CRATE)/rocksdb
include $(rocksdb)/src.mk

# The processor that .cargo/config.toml names; RocksDB picks its CRC32C at compile time.
machine := $(if $(filter x86_64%,$(shell $(CXX) -dumpmachine)),-msse4.2 -mpclmul)

# What the crate's build script defines, and for the programs gflags.
defines := -DOS_LINUX -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -DROCKSDB_SCHED_GETCPU_PRESENT \
    -DROCKSDB_SUPPORT_THREAD_LOCAL -DLZ4=1 -DZSTD=1 -DGFLAGS=1
includes := -I$(rocksdb)/include -I$(rocksdb) -I$(rocksdb)/third-party/gtest-1.8.1/fused-src -I$(CRATE) \
    -I$(LZ4)/liblz4/lib -I$(ZSTD)/zstd/lib
common := -std=c++17 -w -pthread -fPIC -ffunction-sections -fdata-sections $(machine) $(defines)
flags_debug := $(common) -O1 -DROCKSDB_USE_RTTI
flags_release := $(common) -O3 -DNDEBUG

library := $(filter-out util/build_version.cc,$(shell cat $(CRATE)/rocksdb_lib_sources.txt))
# The library is compiled in large units, which is five times as quick as file by file; scripts/rocksdb-tests writes them.
units := $(patsubst units/%.cc,debug/units/%.o,$(wildcard units/*.cc))
gtest := third-party/gtest-1.8.1/fused-src/gtest/gtest-all.cc
support := $(filter-out $(library),$(sort $(TEST_LIB_SOURCES) $(MOCK_LIB_SOURCES) $(STRESS_LIB_SOURCES) \
    $(TOOL_LIB_SOURCES) $(gtest)))
bench := $(BENCH_LIB_SOURCES) test_util/testutil.cc tools/db_bench.cc

zstd_sources = $(wildcard $(foreach part,common compress decompress dictBuilder,$(ZSTD)/zstd/lib/$(part)/*.c))
objects = $(patsubst %.cc,$(1)/%.o,$(2))

.PHONY: all bench flags
all: debug/librocksdb.a debug/libsupport.a $(addprefix debug/,$(addsuffix .o,$(TESTS))) bench
bench: release/libbench.a liblz4.a libzstd.a

# What decides how things are compiled: a part of the folder's key.
flags:
	@printf '%s\n' '$(flags_debug)' '$(flags_release)'

# Compiles $(2) with the flags $(1). The crate and some programs define the same function, each its own way.
compiled = mkdir -p $(@D) && $(CXX) $(1) $(includes) -c $(2) -o $@.new && \
    objcopy --weaken-symbol=RocksDbIOUringEnable $@.new && mv $@.new $@

debug/%.o:
	@echo "$*.cc" >&2
	@$(call compiled,$(flags_debug),$(rocksdb)/$*.cc)
release/%.o:
	@echo "$*.cc (release)" >&2
	@$(call compiled,$(flags_release),$(rocksdb)/$*.cc)
debug/units/%.o: units/%.cc
	@echo "$*.cc" >&2
	@$(call compiled,$(flags_debug),$<)

# Thin archives refer to the objects beside them.
archived = rm -f $@.new; ar rcs --thin $@.new $^ && mv $@.new $@
debug/librocksdb.a: $(units)
	@$(archived)
debug/libsupport.a: $(call objects,debug,$(support))
	@$(archived)
release/libbench.a: $(call objects,release,$(bench))
	@$(archived)

# Like the crates do it, except that lz4's copy of xxhash gets names of its own.
packed = rm -rf $@.objects && mkdir $@.objects && cd $@.objects && $(CC) -O3 -w -fPIC $(1) && \
    ar rcs ../$@.new *.o && cd .. && rm -rf $@.objects && mv $@.new $@
liblz4.a:
	@echo lz4 >&2
	@$(call packed,-DXXH_NAMESPACE=LZ4_ -c $(addprefix $(LZ4)/liblz4/lib/,lz4.c lz4frame.c lz4hc.c xxhash.c))
libzstd.a:
	@echo zstd >&2
	@$(call packed,-DZSTD_DISABLE_ASM -DXXH_NAMESPACE=ZSTD_ -I$(ZSTD)/zstd/lib -c $(zstd_sources))

ifdef OUT
comma := ,
# `make link`: the programs with a plugin. OUT is the folder they go to, PLUGIN the plugin's files, RELEASE the
# server's archive of RocksDB. Every program gets sources of ours too, which take the place of these functions.
here := $(dir $(firstword $(MAKEFILE_LIST)))
wrapped_release := _ZN7rocksdb10FileSystem7DefaultEv realpath
sources_release := $(filter %.cc,$(PLUGIN)) $(here)default_fs.cc
read_async := _ZN7rocksdb22RandomAccessFileReader9ReadAsyncERNS_13FSReadRequestERKNS_9IOOptionsESt8functionI$\
    FvS2_PvEES7_PS7_PS6_IFvS7_EEPSt10unique_ptrIvSC_EPNS_14IODebugContextE
wrapped_debug := $(wrapped_release) $(read_async)
sources_debug := $(sources_release) $(here)async_reads.cc

object = $(OUT)/$(1)/$(notdir $(basename $(2))).o
plugin_objects = $(foreach source,$(sources_$(1)),$(call object,$(1),$(source))) $(filter %.o,$(PLUGIN))
plugin_archives := $(filter %.a,$(PLUGIN))
plugin_includes := $(filter -I%,$(PLUGIN))
plugin_options := $(filter-out -I%,$(filter -%,$(PLUGIN)))

# The plugin sees RocksDB's public headers alone.
define compile_plugin
$(call object,$(1),$(2)): $(2)
	@echo "$(notdir $(2)) ($(1))" >&2
	@mkdir -p $$(@D) && $(CXX) $(filter-out -w,$(flags_$(1))) -Wall $(plugin_includes) -isystem $(rocksdb)/include \
	    $(if $(filter $(here)%,$(2)),-isystem $(rocksdb)) -MMD -MP -MF $$@.d -MT $$@ -c $(2) -o $$@.new && mv $$@.new $$@
endef
$(foreach flavour,debug release,\
    $(foreach source,$(sources_$(flavour)),$(eval $(call compile_plugin,$(flavour),$(source)))))
-include $(wildcard $(OUT)/debug/*.d $(OUT)/release/*.d)

# Links all that the target depends on. The plugin stands before RocksDB: it must be registered before somebody
# asks for a file system.
linked = $(CXX) -o $@.new $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -Wl,--gc-sections \
    $(addprefix -Wl$(comma)--wrap=,$(wrapped_$(1))) $(plugin_options) -lgflags -pthread -ldl -lm && mv $@.new $@
define link_test
$(OUT)/$(notdir $(1)): $(call plugin_objects,debug) debug/$(1).o $(plugin_archives) debug/libsupport.a \
    debug/librocksdb.a liblz4.a libzstd.a
	@echo "$$(@F)" >&2
	@$$(call linked,debug)
endef
$(foreach test,$(TESTS),$(eval $(call link_test,$(test))))
$(OUT)/db_bench: $(call plugin_objects,release) $(plugin_archives) release/libbench.a $(RELEASE) liblz4.a libzstd.a
	@echo "$(@F)" >&2
	@$(call linked,release)

# What is measured is linked with the plugin alone, and with what lies in MEASURED.
plain := $(foreach source,$(filter %.cc,$(PLUGIN)),$(call object,release,$(source)))
wrapped_measured := usleep
$(foreach name,reads pause,$(eval $(call compile_plugin,release,$(MEASURED)/$(name).cc)))
$(OUT)/plain/%: $(plain) $(OUT)/release/pause.o $(plugin_archives) release/libbench.a $(RELEASE) liblz4.a libzstd.a
	@mkdir -p $(@D) && echo "$(@F) (release)" >&2
	@$(call linked,measured)
$(OUT)/plain/reads: $(OUT)/release/reads.o

.PHONY: link link-bench
link-bench: $(OUT)/plain/db_bench $(OUT)/plain/reads
link: $(addprefix $(OUT)/,$(notdir $(TESTS)) db_bench)
endif
