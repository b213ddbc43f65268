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

static const tm_file files[] = {
    {"openapi.yaml", openapi, sizeof openapi},
    {"sdk/tidemark.js", sdk_module, sizeof sdk_module},
    {"sdk/tidemark.d.ts", sdk_types, sizeof sdk_types},
    {"sdk/tidemark-components.js", sdk_components, sizeof sdk_components},
    {"sdk/tidemark-components.d.ts", sdk_components_types, sizeof sdk_components_types},
    {"sdk/tidemark-sw.js", sdk_worker, sizeof sdk_worker},
    {"sdk/tidemark-sw.d.ts", sdk_worker_types, sizeof sdk_worker_types},
    {"demo/index.html", demo_page, sizeof demo_page},
    {"demo/demo.css", demo_style, sizeof demo_style},
    {"demo/demo.js", demo_main, sizeof demo_main},
    {"demo/device.js", demo_device, sizeof demo_device},
    {"demo/backend.js", demo_backend, sizeof demo_backend},
    {"demo/wire.js", demo_wire, sizeof demo_wire},
    {"demo/elements.js", demo_elements, sizeof demo_elements},
    {"demo/words.js", demo_words, sizeof demo_words},
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
