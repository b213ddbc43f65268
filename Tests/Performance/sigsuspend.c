/* Valgrind 3.19 writes to the signal mask that a program passes to sigsuspend(2). Swift's dispatch library passes one
   from read-only memory, so it crashes. This replacement, which is preloaded, passes a copy. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

int sigsuspend(const sigset_t *mask) {
  sigset_t copy = *mask;
  return (int)syscall(SYS_rt_sigsuspend, &copy, 8);
}
