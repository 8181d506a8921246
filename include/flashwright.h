/* flashwright: checkpoints on a fast and a slow tier, crash-safe. Link with -lflashwright_c.
 *
 *     fw_store *store;
 *     char path[PATH_MAX];
 *     fw_open("/local/ckpt", "/lustre/me/ckpt", "keep_fast=2,keep_slow=3", &store);
 *     fw_begin(store, 100);
 *     fw_path(store, 100, path, sizeof path);     write files below this directory, close them
 *     fw_commit(store, 100);                      durable on the fast tier; drained behind the program's back
 *     fw_wait(store, 100, FW_DURABLE, -1);        on the slow tier, whole and read back
 *     fw_close(store);
 *
 * Every call but fw_last_error returns one of the codes below; what went wrong, and what to do about it, is kept for the
 * calling thread until its next call. All calls but fw_close may be made on one store by several threads at once. A store
 * belongs to the process that opened it: after fork() the child's calls are refused. Under MPI, one rank per fast tier
 * opens a store; the others write below the path that it tells them. Signals do not end a call.
 *
 * The words are those of docs/c.md, which has a program in C and one in Fortran. */
#ifndef FLASHWRIGHT_H
#define FLASHWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FW_OK 0      /* done */
#define FW_FAILED 1  /* the system would not, or a checkpoint could not be drained */
#define FW_INVALID 2 /* the request makes no sense */
#define FW_REFUSED 3 /* refused, because it might cost somebody data, or is somebody else's */
#define FW_TIMEOUT 4 /* the time was up; it goes on */
#define FW_NONE 5    /* there is no checkpoint */
#define FW_BUG 6     /* a fault of this library's */

#define FW_LOCAL 1   /* synced on the fast tier */
#define FW_DURABLE 2 /* durable on the slow tier, and read back; a slow tier in memory (tmpfs) has nothing that is */

typedef struct FwStore fw_store;

/* Opens a store over two directories, which are made if their parents are there, and goes on with what an earlier program
 * left undrained. slow may be an object store, "s3://BUCKET/PREFIX". options, or NULL: "keep_fast=N,keep_slow=N,bwlimit=RATE,state=DIR,read_only,parents,jobs=N,threads=N", any of
 * them. One program at a time writes to a store. */
int fw_open(const char *fast, const char *slow, const char *options, fw_store **store);

/* Stops draining, between two steps, and frees the store; what is not drained is gone on with when it is opened next.
 * NULL is nothing to close. No other thread may be in a call with it. */
int fw_close(fw_store *store);

/* Begins checkpoint number `step`: makes a hidden directory on the fast tier. */
int fw_begin(const fw_store *store, uint64_t step);

/* The directory of a checkpoint that is begun, as a string that ends with NUL; size is that of the buffer. */
int fw_path(const fw_store *store, uint64_t step, char *buffer, size_t size);

/* Makes everything in it durable, gives it its name, step-00000100, and has it drained. If it fails the checkpoint is gone. */
int fw_commit(const fw_store *store, uint64_t step);

/* Gives up a checkpoint that is begun. */
int fw_abandon(const fw_store *store, uint64_t step);

/* Waits until a committed checkpoint has come to a level, FW_LOCAL or FW_DURABLE; for so many seconds at most, as long as it
 * takes if they are negative. FW_FAILED: its drain failed; it is still on the fast tier. FW_REFUSED: FW_DURABLE, and the slow
 * tier is in memory. */
int fw_wait(const fw_store *store, uint64_t step, int level, double seconds);

/* The newest checkpoint that is durable, or, with FW_LOCAL, on either tier. FW_NONE if there is none. */
int fw_latest(const fw_store *store, int level, uint64_t *step);

/* A directory on the fast tier with a checkpoint, verified; staged in from the slow tier where it has gone from there. */
int fw_restore(const fw_store *store, uint64_t step, char *buffer, size_t size);

/* What went wrong in this thread's last call, cut to the buffer; a second line, if any, begins with "hint: ". Returns its
 * length without the NUL: 0 if nothing went wrong. */
size_t fw_last_error(char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
