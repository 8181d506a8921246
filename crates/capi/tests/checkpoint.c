/* Checkpoints written, drained, restored, and refused where they should be. argv: fast, slow. */
#define _POSIX_C_SOURCE 200809L
#include <flashwright.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char message[1024];

static void expect(int code, int wanted, const char *what) {
    if (code != wanted) {
        fw_last_error(message, sizeof message);
        fprintf(stderr, "%s: %d, and not %d: %s\n", what, code, wanted, message);
        exit(1);
    }
}

static void expect_said(const char *words) {
    fw_last_error(message, sizeof message);
    if (!strstr(message, words)) {
        fprintf(stderr, "%s: does not say: %s\n", message, words);
        exit(1);
    }
}

int main(int argc, char **argv) {
    fw_store *store = NULL;
    char path[PATH_MAX], file[PATH_MAX + 16], read[16] = "";
    uint64_t latest = 0;
    FILE *out;

    if (argc != 3) return 2;
    expect(fw_open(argv[1], argv[2], "keep_fish=1", &store), FW_INVALID, "an option that is none");
    expect_said("hint: keep_fast=N");
    expect(fw_open(NULL, argv[2], NULL, &store), FW_INVALID, "no directory");
    expect(fw_begin(NULL, 1), FW_INVALID, "no store");
    expect(fw_open(argv[1], argv[2], "keep_fast=2, keep_slow=3, bwlimit=8g", &store), FW_OK, "open");
    expect(fw_latest(store, FW_DURABLE, &latest), FW_NONE, "latest of nothing");
    expect(fw_commit(store, 100), FW_INVALID, "commit without begin");
    expect(fw_begin(store, 100), FW_OK, "begin");
    expect(fw_begin(store, 100), FW_REFUSED, "begin twice");
    expect(fw_path(store, 100, path, 8), FW_INVALID, "a buffer too small");
    expect_said("size 8");
    if (fw_last_error(message, 5) < 5 || strlen(message) != 4) return 1;
    expect(fw_path(store, 100, path, sizeof path), FW_OK, "path");
    if (fw_last_error(message, sizeof message) != 0 || message[0]) return 1;
    snprintf(file, sizeof file, "%s/rank-0", path);
    if (!(out = fopen(file, "w")) || fputs("temperature", out) < 0 || fclose(out)) return 1;
    expect(fw_commit(store, 100), FW_OK, "commit");
    expect(fw_wait(store, 100, FW_LOCAL, 0), FW_OK, "wait for the fast tier");
    expect(fw_wait(store, 100, FW_DURABLE, -1), FW_OK, "wait for the slow tier");
    expect(fw_wait(store, 100, 7, -1), FW_INVALID, "a level that is none");
    expect(fw_latest(store, FW_DURABLE, &latest), FW_OK, "latest");
    if (latest != 100) return 1;
    expect(fw_begin(store, 101), FW_OK, "begin another");
    expect(fw_abandon(store, 101), FW_OK, "abandon");
    expect(fw_wait(store, 101, FW_LOCAL, 0), FW_INVALID, "wait for what is not");
    expect(fw_restore(store, 100, path, sizeof path), FW_OK, "restore");
    snprintf(file, sizeof file, "%s/rank-0", path);
    if (!(out = fopen(file, "r")) || !fgets(read, sizeof read, out) || strcmp(read, "temperature")) return 1;
    fclose(out);
    expect(fw_close(store), FW_OK, "close");
    expect(fw_close(NULL), FW_OK, "close nothing");
    puts("ok");
    return 0;
}
