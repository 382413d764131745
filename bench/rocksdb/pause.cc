// Takes a pause out of db_bench: its `waitforcompaction` sleeps for five seconds before it waits, which would hide
// what is still to be done then. db_bench is linked with --wrap=usleep.

#include <unistd.h>

extern "C" int __real_usleep(useconds_t micros);
extern "C" int __wrap_usleep(useconds_t micros);

extern "C" int __wrap_usleep(useconds_t micros) {
  constexpr useconds_t kPause = 5'000'000;
  return micros == kPause ? 0 : __real_usleep(micros);
}
