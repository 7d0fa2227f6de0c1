/* A plugin that is linked to nothing, and asks the loader for functions by name. Its caller's view
 * of the loader (RUNPATH, binding) must be its own. */

#include <dlfcn.h>

void *plugin_open(const char *name);

void *plugin_open(const char *name) { return dlopen(name, RTLD_NOW); }
