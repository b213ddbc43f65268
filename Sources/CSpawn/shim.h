// Extensions in <spawn.h> of glibc 2.34 and later that are missing in Swift's Glibc module.
#pragma once
#include <spawn.h>

/// In the child: close all descriptors from `from` on.
extern int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from);

/// In the child: change the working directory.
extern int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *actions, const char *path);
