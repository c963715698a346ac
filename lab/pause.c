/* The first process of a pod's sandbox and of each machine of the lab: it holds
   their namespaces, reaps the orphans that the kernel gives it, and does nothing else. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(int number) {
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

static void end(int number) {
    (void)number;
    _exit(0);
}

int main(void) {
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    struct sigaction on_end = {.sa_handler = end};
    if (sigaction(SIGCHLD, &on_child, NULL) || sigaction(SIGINT, &on_end, NULL) ||
        sigaction(SIGTERM, &on_end, NULL)) {
        return 1;
    }
    for (;;) {
        pause();
    }
}
