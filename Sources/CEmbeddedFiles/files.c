// clang accepts C23's #embed in every version of C, with a warning about an extension.
#pragma clang diagnostic ignored "-Wc23-extensions"
#include "CEmbeddedFiles.h"

#include <stdlib.h>
#include <zlib.h>

// C23's #embed (clang 19, Swift 6.2). SwiftPM's .embedInCode makes an array literal, which compiles for 20 to 40 s.
static const unsigned char openapi[] = {
#embed "../../Proto/openapi.yaml"
};
static const unsigned char sdk_module[] = {
#embed "../../SDK/js/tidemark.js"
};
static const unsigned char sdk_types[] = {
#embed "../../SDK/js/tidemark.d.ts"
};
static const unsigned char sdk_components[] = {
#embed "../../SDK/js/tidemark-components.js"
};
static const unsigned char sdk_components_types[] = {
#embed "../../SDK/js/tidemark-components.d.ts"
};
static const unsigned char sdk_worker[] = {
#embed "../../SDK/js/tidemark-sw.js"
};
static const unsigned char sdk_worker_types[] = {
#embed "../../SDK/js/tidemark-sw.d.ts"
};
static const unsigned char demo_page[] = {
#embed "demo/index.html"
};
static const unsigned char base_style[] = {
#embed "demo/base.css"
};
static const unsigned char demo_style[] = {
#embed "demo/demo.css"
};
static const unsigned char demo_main[] = {
#embed "demo/demo.js"
};
static const unsigned char demo_device[] = {
#embed "demo/device.js"
};
static const unsigned char demo_backend[] = {
#embed "demo/backend.js"
};
static const unsigned char demo_wire[] = {
#embed "demo/wire.js"
};
static const unsigned char demo_elements[] = {
#embed "demo/elements.js"
};
static const unsigned char demo_words[] = {
#embed "demo/words.js"
};
static const unsigned char console_page[] = {
#embed "console/index.html"
};
static const unsigned char console_style[] = {
#embed "console/console.css"
};
static const unsigned char console_main[] = {
#embed "console/console.js"
};
static const unsigned char console_api[] = {
#embed "console/api.js"
};
static const unsigned char console_channel[] = {
#embed "console/channel.js"
};
static const unsigned char console_parts[] = {
#embed "console/parts.js"
};
static const unsigned char console_picture[] = {
#embed "console/picture.js"
};
static const unsigned char console_why[] = {
#embed "console/why.js"
};
static const unsigned char console_user[] = {
#embed "console/user.js"
};
static const unsigned char console_system[] = {
#embed "console/system.js"
};
static const unsigned char console_types[] = {
#embed "console/types.js"
};
static const unsigned char console_words[] = {
#embed "console/words.js"
};

static const tm_file files[] = {
    {"openapi.yaml", openapi, sizeof openapi},
    {"sdk/tidemark.js", sdk_module, sizeof sdk_module},
    {"sdk/tidemark.d.ts", sdk_types, sizeof sdk_types},
    {"sdk/tidemark-components.js", sdk_components, sizeof sdk_components},
    {"sdk/tidemark-components.d.ts", sdk_components_types, sizeof sdk_components_types},
    {"sdk/tidemark-sw.js", sdk_worker, sizeof sdk_worker},
    {"sdk/tidemark-sw.d.ts", sdk_worker_types, sizeof sdk_worker_types},
    {"demo/index.html", demo_page, sizeof demo_page},
    {"demo/base.css", base_style, sizeof base_style},
    {"demo/demo.css", demo_style, sizeof demo_style},
    {"demo/demo.js", demo_main, sizeof demo_main},
    {"demo/device.js", demo_device, sizeof demo_device},
    {"demo/backend.js", demo_backend, sizeof demo_backend},
    {"demo/wire.js", demo_wire, sizeof demo_wire},
    {"demo/elements.js", demo_elements, sizeof demo_elements},
    {"demo/words.js", demo_words, sizeof demo_words},
    {"console/index.html", console_page, sizeof console_page},
    {"console/base.css", base_style, sizeof base_style},
    {"console/console.css", console_style, sizeof console_style},
    {"console/console.js", console_main, sizeof console_main},
    {"console/api.js", console_api, sizeof console_api},
    {"console/channel.js", console_channel, sizeof console_channel},
    {"console/parts.js", console_parts, sizeof console_parts},
    {"console/picture.js", console_picture, sizeof console_picture},
    {"console/why.js", console_why, sizeof console_why},
    {"console/user.js", console_user, sizeof console_user},
    {"console/system.js", console_system, sizeof console_system},
    {"console/types.js", console_types, sizeof console_types},
    {"console/elements.js", demo_elements, sizeof demo_elements},
    {"console/words.js", console_words, sizeof console_words},
};

const tm_file *tm_files(size_t *count) {
  *count = sizeof files / sizeof *files;
  return files;
}

size_t tm_gzip(const void *start, size_t count, void *output, size_t capacity) {
  z_stream stream = {0};
  // 15 bits of window, and 16 for gzip's header instead of zlib's.
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
  stream.next_in = (Bytef *)start;
  stream.avail_in = (uInt)count;
  stream.next_out = output;
  stream.avail_out = (uInt)capacity;
  int result = deflate(&stream, Z_FINISH);
  size_t written = stream.total_out;
  deflateEnd(&stream);
  return result == Z_STREAM_END ? written : 0;
}
