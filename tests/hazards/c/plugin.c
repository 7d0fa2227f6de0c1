/* A plugin of some framework, linked to the driver, with a RUNPATH of its own; it may also ask for
 * the driver by name. */

#include <dlfcn.h>

int cuInit(unsigned flags);

void *plugin_init(void);
void *plugin_open(const char *name);

void *plugin_init(void) { return (void *)cuInit; }

void *plugin_open(const char *name) { return dlopen(name, RTLD_NOW); }
