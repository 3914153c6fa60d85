/* SPDX-License-Identifier: Apache-2.0 */
/* The assembler puts the files in; CMakeLists.txt makes this file depend on them. */
#include "agent/live/assets.h"

#define ASSET(symbol, file)                                                                        \
	__asm__(".pushsection .rodata\n"                                                           \
		".global " #symbol "\n" #symbol ":\n"                                              \
		".incbin \"" WEB_DIR "/" file "\"\n"                                               \
		".global " #symbol "_end\n" #symbol "_end:\n"                                      \
		".byte 0\n"                                                                        \
		".popsection\n");                                                                  \
	extern const char symbol[], symbol##_end[]

ASSET(web_index_html, "index.html");
ASSET(web_style_css, "style.css");
ASSET(web_app_js, "app.js");
ASSET(web_model_js, "model.js");
ASSET(web_tree_js, "tree.js");
ASSET(web_table_js, "table.js");
ASSET(web_stream_js, "stream.js");
ASSET(web_flame_js, "flame.js");
ASSET(web_export_js, "export.js");

#define SCRIPT "text/javascript; charset=utf-8"

const struct live_asset live_assets[] = {
    {"/", "text/html; charset=utf-8", web_index_html, web_index_html_end},
    {"/style.css", "text/css; charset=utf-8", web_style_css, web_style_css_end},
    {"/app.js", SCRIPT, web_app_js, web_app_js_end},
    {"/model.js", SCRIPT, web_model_js, web_model_js_end},
    {"/tree.js", SCRIPT, web_tree_js, web_tree_js_end},
    {"/table.js", SCRIPT, web_table_js, web_table_js_end},
    {"/stream.js", SCRIPT, web_stream_js, web_stream_js_end},
    {"/flame.js", SCRIPT, web_flame_js, web_flame_js_end},
    {"/export.js", SCRIPT, web_export_js, web_export_js_end},
};
const size_t live_n_assets = ARRAY_SIZE(live_assets);
