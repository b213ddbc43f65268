// What <spawn.h> of glibc 2.34 and later has beside POSIX, which Swift's own module of glibc leaves out.
#pragma once
#include <spawn.h>

/// In the child: closes all descriptors from this one on.
extern int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from);

/// In the child: changes the working directory.
extern int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *actions, const char *path);
