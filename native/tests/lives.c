/*
 * The lives of processes and threads that use a GPU, as programs lead them: `lives SCENE` prints a
 * JSON line for each step, and waits for a line on standard input where the test has to act first.
 *
 *   child      takes the GPU and 2 MiB, prints how many descriptors it has, waits for a line
 *   vfork      takes the GPU; a child of vfork becomes `child`
 *   spawn      the same by posix_spawn
 *   cancel     a thread that is to end at the next call that may wait allocates, and waits to
 *              launch
 *   unwind     a thread allocates and launches without end while another one calls exit
 *   handler    a signal's handler allocates and frees while its thread waits to launch
 *   atexit     functions that exit calls, one registered before the first call of the driver and
 *              one after it, allocate and launch
 *   exit       a signal's handler calls exit while its thread allocates and frees
 */
#include "paths.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)2 << 20)

extern char **environ;

static CUcontext context;
static CUfunction kernel;

static void report(const char *step, int result) {
    printf("{\"step\": \"%s\", \"result\": %d, \"pid\": %d}\n", step, result, (int)getpid());
}

static void hold_on(void) {
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL)
        exit(0);
}

static int take_gpu(void) {
    CUmodule module;
    int result = driver.init(0);
    if (result == 0)
        result = driver.primary_retain(&context, 0);
    if (result == 0)
        result = driver.set_current(context);
    if (result == 0)
        result = driver.module_load(&module, "// any image");
    return result != 0 ? result : driver.module_function(&kernel, module, "kubeshare_spin_us");
}

static int launch(void) {
    unsigned microseconds = 100;
    void *parameters[] = {&microseconds};
    return driver.launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static int take_and_free(void) {
    CUdeviceptr pointer = 0;
    const int result = driver.alloc(&pointer, BYTES);
    return result != 0 ? result : driver.free(pointer);
}

/* ---- processes ------------------------------------------------------------------ */

static int count_descriptors(void) {
    int count = -4; /* itself, "." and "..", and what is left are the standard ones */
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count - 2;
}

static int child(void) {
    CUdeviceptr pointer = 0;
    const int descriptors = count_descriptors();
    int result = take_gpu();
    if (result == 0)
        result = driver.alloc(&pointer, BYTES);
    report("child", result);
    report("descriptors", descriptors);
    hold_on();
    return 0;
}

static char *const child_arguments[] = {"lives", "child", NULL};

static pid_t by_vfork(void) {
    const pid_t pid = vfork();
    if (pid == 0) {
        execve("/proc/self/exe", child_arguments, environ);
        _exit(127);
    }
    return pid;
}

static pid_t by_spawn(void) {
    pid_t pid = -1;
    posix_spawn(&pid, "/proc/self/exe", NULL, NULL, child_arguments, environ);
    return pid;
}

static int with_child(pid_t (*start)(void)) {
    CUdeviceptr pointer;
    int status = -1;
    int result = take_gpu();
    if (result == 0)
        result = driver.alloc(&pointer, BYTES);
    report("parent", result);
    const pid_t pid = start();
    waitpid(pid, &status, 0);
    report("after", launch());
    return status;
}

/* ---- threads and signals --------------------------------------------------------- */

static void *launch_cancelled(void *unused) {
    (void)unused;
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(state, NULL);
    driver.set_current(context);
    take_and_free();
    launch();
    pthread_testcancel();
    return NULL;
}

static int cancel(void) {
    pthread_t thread;
    void *outcome = NULL;
    report("ready", take_gpu());
    pthread_create(&thread, NULL, launch_cancelled, NULL);
    pthread_join(thread, &outcome);
    report("cancelled", outcome != PTHREAD_CANCELED);
    report("allocated", take_and_free());
    report("launched", launch());
    report("done", driver.synchronize());
    hold_on();
    return 0;
}

static void work_at_exit(const char *when) {
    CUdeviceptr pointer;
    report(when, driver.alloc(&pointer, BYTES) != 0 || launch() != 0 || driver.synchronize() != 0);
}

static void work_last(void) {
    work_at_exit("before cuInit");
}

static void work_first(void) {
    work_at_exit("after cuInit");
}

static int work_in_exit(void) {
    atexit(work_last);
    report("ready", take_gpu());
    atexit(work_first);
    return 7;
}

static atomic_int rounds;

static void *work_without_end(void *unused) {
    (void)unused;
    driver.set_current(context);
    for (;;) {
        take_and_free();
        launch();
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static int unwind(void) {
    pthread_t threads[4];
    const int result = take_gpu();
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work_without_end, NULL);
    while (atomic_load(&rounds) < 100)
        sched_yield();
    report("exits", result);
    exit(7);
}

static void allocate_in_handler(int signal) {
    (void)signal;
    char answer[] = "{\"step\": \"handler\", \"result\": 0}\n";
    if (take_and_free() != 0)
        answer[sizeof answer - 4] = '1';
    if (write(STDOUT_FILENO, answer, sizeof answer - 1) < 0)
        _exit(1);
}

static int handler(void) {
    signal(SIGUSR1, allocate_in_handler);
    report("ready", take_gpu());
    report("launched", launch());
    report("done", driver.synchronize());
    hold_on();
    return 0;
}

static void exit_in_handler(int signal) {
    (void)signal;
    exit(7);
}

static int exit_anywhere(void) {
    const struct itimerval soon = {.it_value = {.tv_usec = 2000 + getpid() % 1000}};
    report("ready", take_gpu());
    signal(SIGALRM, exit_in_handler);
    setitimer(ITIMER_REAL, &soon, NULL);
    while (take_and_free() == 0)
        ;
    return 1;
}

int main(int count, char **arguments) {
    const char *scene = count == 2 ? arguments[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!find_driver("dlsym"))
        return 2;
    if (strcmp(scene, "child") == 0)
        return child();
    if (strcmp(scene, "vfork") == 0)
        return with_child(by_vfork);
    if (strcmp(scene, "spawn") == 0)
        return with_child(by_spawn);
    if (strcmp(scene, "cancel") == 0)
        return cancel();
    if (strcmp(scene, "unwind") == 0)
        return unwind();
    if (strcmp(scene, "handler") == 0)
        return handler();
    if (strcmp(scene, "atexit") == 0)
        return work_in_exit();
    if (strcmp(scene, "exit") == 0)
        return exit_anywhere();
    fprintf(stderr, "lives: no such scene: %s\n", scene);
    return 2;
}
