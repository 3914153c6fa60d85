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
ASSET(web_address_js, "address.js");
ASSET(web_filters_js, "filters.js");
ASSET(web_keep_js, "keep.js");
ASSET(web_menu_js, "menu.js");
ASSET(web_timeline_js, "timeline.js");

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
    {"/address.js", SCRIPT, web_address_js, web_address_js_end},
    {"/filters.js", SCRIPT, web_filters_js, web_filters_js_end},
    {"/keep.js", SCRIPT, web_keep_js, web_keep_js_end},
    {"/menu.js", SCRIPT, web_menu_js, web_menu_js_end},
    {"/timeline.js", SCRIPT, web_timeline_js, web_timeline_js_end},
};
const size_t live_n_assets = ARRAY_SIZE(live_assets);
