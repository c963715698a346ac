/*
 * Processes that do nothing but take turns on a GPU's token, and what stands in for the daemon
 * when it is to be seen what the machine itself takes for that.
 *
 *   token-turns FOLDER SECONDS             a process of the session with this folder: always wants,
 *                                          drains at once; prints when it was let in and drained
 *   token-turns --floor QUOTA_US FOLDER... a daemon that arbitrates nothing, for these sessions:
 * the next one on the same GPU is served. Ends with its stdin
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <kubeshare_wire.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX   65536
#define SESSIONS_MAX 256

struct page {
    struct ks_page_header header;
    struct ks_page_cell cell;
};

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static struct page *map_page(const char *folder, bool make) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/page", folder);
    const int file = open(path, make ? O_RDWR | O_CREAT : O_RDONLY, 0644);
    if (file < 0 || (make && ftruncate(file, sizeof(struct page)) != 0))
        fail(path);
    void *mapped =
        mmap(NULL, sizeof(struct page), PROT_READ | (make ? PROT_WRITE : 0), MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        fail(path);
    close(file);
    return mapped;
}

static struct sockaddr_un address_of(const char *folder) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder) >=
        (int)sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        fail(folder);
    }
    return address;
}

static void send_message(int connection, uint16_t type, uint32_t epoch, uint64_t value) {
    const struct ks_message message = {.version = KS_WIRE_VERSION,
                                       .type = type,
                                       .epoch = epoch,
                                       .time_ns = (uint64_t)now(),
                                       .value = value};
    send(connection, &message, sizeof message, MSG_NOSIGNAL);
}

/* ---- a process of a session -------------------------------------------------- */

static int64_t let_in[EVENTS_MAX], drained[EVENTS_MAX];
static atomic_uint times_let_in;
static unsigned times_drained;
static int connection;
static struct page *page;

static atomic_uint closings; /* one more with each; the other thread sleeps on it while it is in */

static void wait_for_change(atomic_uint *word, unsigned seen) {
    while (atomic_load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void *stand_at_the_gate(void *unused) {
    atomic_uint *epoch = (atomic_uint *)&page->cell.epoch;
    atomic_uint *state = (atomic_uint *)&page->cell.gate_state;
    for (;;) {
        const unsigned closed = atomic_load(&closings);
        const unsigned seen = atomic_load(epoch);
        if (atomic_load(state) != KS_GATE_OPEN) {
            send_message(connection, KS_WANT, seen, 0);
            wait_for_change(epoch, seen);
        } else {
            if (times_let_in < EVENTS_MAX)
                let_in[atomic_fetch_add(&times_let_in, 1)] = now();
            wait_for_change(&closings, closed);
        }
    }
    return unused;
}

static int take_turns(const char *folder, double seconds) {
    const struct sockaddr_un address = address_of(folder);
    struct ks_message message;
    pthread_t gate;
    page = map_page(folder, false);
    connection = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(connection, (const struct sockaddr *)&address, sizeof address) != 0)
        fail(folder);
    send_message(connection, KS_HELLO, KS_PROTOCOL_NEWEST, KS_PROTOCOL_OLDEST);
    if (recv(connection, &message, sizeof message, 0) != sizeof message ||
        message.type != KS_WELCOME)
        fail("no welcome");
    if (pthread_create(&gate, NULL, stand_at_the_gate, NULL) != 0)
        fail("thread");
    struct pollfd readable = {.fd = connection, .events = POLLIN};
    for (const int64_t end = now() + (int64_t)(seconds * 1e9); now() < end;) {
        if (poll(&readable, 1, 100) == 0)
            continue;
        if (recv(connection, &message, sizeof message, 0) != sizeof message)
            break;
        if (message.type == KS_CLOSING && times_drained < EVENTS_MAX) {
            drained[times_drained++] = now();
            send_message(connection, KS_DRAINED, message.epoch, 0);
            atomic_fetch_add(&closings, 1);
            syscall(SYS_futex, &closings, FUTEX_WAKE, 1, NULL, NULL, 0);
        }
    }
    for (unsigned i = 0; i < times_let_in; i++)
        printf("in %" PRId64 "\n", let_in[i]);
    for (unsigned i = 0; i < times_drained; i++)
        printf("out %" PRId64 "\n", drained[i]);
    fflush(stdout);
    _exit(0); /* the other thread waits at the gate */
}

/* ---- a daemon without judgement --------------------------------------------- */

struct session {
    struct page *page;
    int gpu; /* the first session on the same GPU */
    bool wants;
};

static struct session sessions[SESSIONS_MAX];
static struct pollfd watched[1 + 2 * SESSIONS_MAX]; /* stdin, listeners, connections */
static int holder[SESSIONS_MAX];                    /* of each GPU; -1: none */
static int64_t lease_end[SESSIONS_MAX];             /* 0 while it drains */
static int count;

static void set_gate(int session, enum ks_gate_state state) {
    struct ks_page_cell *cell = &sessions[session].page->cell;
    atomic_store((atomic_uint *)&cell->gate_state, state);
    if (state == KS_GATE_CLOSED)
        return;
    atomic_fetch_add((atomic_uint *)&cell->epoch, 1);
    syscall(SYS_futex, &cell->epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void serve_next(int gpu, int after, int64_t quota) {
    for (int step = 1; step <= count; step++) {
        const int next = (after + step) % count;
        if (sessions[next].gpu == gpu && sessions[next].wants) {
            sessions[next].wants = false;
            holder[gpu] = next;
            set_gate(next, KS_GATE_OPEN);
            lease_end[gpu] = now() + quota;
            return;
        }
    }
    holder[gpu] = -1;
}

static void hear(int session, int64_t quota) {
    struct ks_message message;
    const int from = watched[1 + count + session].fd;
    const int gpu = sessions[session].gpu;
    if (recv(from, &message, sizeof message, MSG_DONTWAIT) != sizeof message) {
        watched[1 + count + session].fd = -1;
        close(from);
    } else if (message.type == KS_HELLO) {
        send_message(from, KS_WELCOME, 0, KS_PROTOCOL_NEWEST);
    } else if (message.type == KS_WANT) {
        sessions[session].wants = true;
        if (holder[gpu] < 0)
            serve_next(gpu, session - 1 + count, quota);
    } else if (message.type == KS_DRAINED && holder[gpu] == session) {
        set_gate(session, KS_GATE_CLOSED);
        serve_next(gpu, session, quota);
    }
}

static int64_t end_leases(void) {
    int64_t next = INT64_MAX;
    for (int gpu = 0; gpu < count; gpu++) {
        if (sessions[gpu].gpu != gpu || holder[gpu] < 0 || lease_end[gpu] == 0)
            continue;
        if (now() >= lease_end[gpu]) {
            const int closing = holder[gpu];
            lease_end[gpu] = 0;
            set_gate(closing, KS_GATE_CLOSING);
            send_message(watched[1 + count + closing].fd, KS_CLOSING,
                         sessions[closing].page->cell.epoch, 0);
        } else if (lease_end[gpu] < next) {
            next = lease_end[gpu];
        }
    }
    return next;
}

static void listen_for(int session, const char *folder) {
    const struct sockaddr_un address = address_of(folder);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (bind(listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0)
        fail(folder);
    sessions[session].page = map_page(folder, true);
    for (sessions[session].gpu = 0; sessions[session].gpu < session; sessions[session].gpu++) {
        if (memcmp(sessions[sessions[session].gpu].page->cell.uuid,
                   sessions[session].page->cell.uuid, 16) == 0)
            break;
    }
    holder[session] = -1;
    watched[1 + session] = (struct pollfd){.fd = listener, .events = POLLIN};
    watched[1 + count + session] = (struct pollfd){.fd = -1, .events = POLLIN};
}

static int stand_in(int64_t quota, int folders, char **folder) {
    count = folders;
    for (int session = 0; session < count; session++)
        listen_for(session, folder[session]);
    watched[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    puts("serving");
    fflush(stdout);
    for (;;) {
        const int64_t pause = end_leases() - now();
        const struct timespec timeout = {pause / 1000000000, pause % 1000000000};
        const struct timespec none = {0, 0};
        const struct timespec long_time = {3600, 0};
        const struct timespec *until = pause < 0               ? &none
                                       : pause > 3600000000000 ? &long_time
                                                               : &timeout;
        ppoll(watched, (nfds_t)(1 + 2 * count), until, NULL);
        if (watched[0].revents != 0)
            return 0;
        for (int session = 0; session < count; session++) {
            if (watched[1 + session].revents != 0)
                watched[1 + count + session].fd = accept(watched[1 + session].fd, NULL, NULL);
            if (watched[1 + count + session].revents != 0)
                hear(session, quota);
        }
    }
}

int main(int argc, char **argv) {
    if (argc == 3)
        return take_turns(argv[1], strtod(argv[2], NULL));
    if (argc > 3 && argc - 3 <= SESSIONS_MAX && strcmp(argv[1], "--floor") == 0)
        return stand_in(1000 * strtoll(argv[2], NULL, 10), argc - 3, argv + 3);
    fprintf(stderr, "token-turns FOLDER SECONDS | token-turns --floor QUOTA_US FOLDER...\n");
    return 2;
}
