/*
 * A process that attacks the token daemon through the socket of its own session.
 *
 *   hostile FOLDER SECONDS SEED
 *
 * In turns: datagrams of any length and content, floods of messages that are well formed, answers
 * that are lies (drained, idle: in the past, in the future, for other epochs and cells),
 * connections that send nothing, or HELLO and nothing more and read no answer,
 * and as many connections as can be had. Prints how often each came about; ends with 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <kubeshare_wire.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 2000
#define BURST           20000

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static uint64_t seed;
static int held[CONNECTIONS_MAX];
static int held_count;

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint64_t any(uint64_t below) { /* xorshift64* */
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (seed * UINT64_C(2685821657736338717) >> 11) % below;
}

static int connect_once(void) {
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    if (made >= 0 && connect(made, (const struct sockaddr *)&address, sizeof address) == 0)
        return made;
    if (made >= 0)
        close(made);
    return -1;
}

static bool send_message(int connection, struct ks_message message) {
    return send(connection, &message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message;
}

static struct ks_message hello(void) {
    return (struct ks_message){.version = KS_WIRE_VERSION,
                               .type = KS_HELLO,
                               .epoch = KS_PROTOCOL_NEWEST,
                               .value = KS_PROTOCOL_OLDEST};
}

static struct ks_message well_formed(void) {
    static const uint16_t types[] = {KS_WANT, KS_DRAINED, KS_IDLE, KS_BUSY};
    return (struct ks_message){.version = KS_WIRE_VERSION,
                               .type = types[any(4)],
                               .cell = (uint32_t)(any(20) == 0 ? any(UINT32_MAX) : 0),
                               .epoch = (uint32_t)any(any(2) ? 64 : UINT32_MAX),
                               .time_ns = any(2) ? any(UINT64_MAX) : 0,
                               .value = any(UINT64_MAX)};
}

static bool send_garbage(void) {
    static unsigned char bytes[70000];
    const int connection = connect_once();
    if (connection < 0)
        return false;
    if (any(2))
        send_message(connection, hello());
    for (uint64_t times = any(20); times > 0; times--) {
        const size_t size = any(4) ? any(64) : any(sizeof bytes);
        for (size_t i = 0; i < size && i < 64; i++)
            bytes[i] = (unsigned char)any(256);
        if (send(connection, bytes, size, MSG_NOSIGNAL) < 0)
            break;
    }
    close(connection);
    return true;
}

static bool flood(void) {
    const int connection = connect_once();
    if (connection < 0)
        return false;
    send_message(connection, hello());
    for (int i = 0; i < BURST; i++) {
        if (!send_message(connection, well_formed()) && errno != EAGAIN)
            break;
    }
    close(connection);
    return true;
}

/* Holds the token as long as the daemon permits: sends WANT, and lies about each CLOSING. */
static bool lie(void) {
    const int connection = connect_once();
    struct ks_message heard;
    if (connection < 0)
        return false;
    send_message(connection, hello());
    for (int i = 0; i < 200; i++) {
        struct pollfd readable = {.fd = connection, .events = POLLIN};
        send_message(connection, (struct ks_message){.version = KS_WIRE_VERSION, .type = KS_WANT});
        if (poll(&readable, 1, 5) <= 0)
            continue;
        if (recv(connection, &heard, sizeof heard, 0) != (ssize_t)sizeof heard)
            break;
        if (heard.type == KS_CLOSING || heard.type == KS_WATCH) {
            struct ks_message answer = well_formed();
            answer.type = heard.type == KS_CLOSING ? KS_DRAINED : KS_IDLE;
            answer.cell = heard.cell;
            answer.epoch = any(4) ? heard.epoch : heard.epoch + 1;
            send_message(connection, answer);
        }
    }
    close(connection);
    return true;
}

static void let_go(void) {
    while (held_count > 0)
        close(held[--held_count]);
}

/* Connections that stay and do nothing, half of them with a hello and deaf from then on. */
static bool hoard(void) {
    const int before = held_count;
    while (held_count < CONNECTIONS_MAX) {
        const int connection = connect_once();
        if (connection < 0)
            break;
        if (any(2))
            send_message(connection, hello());
        held[held_count++] = connection;
    }
    if (any(2))
        let_go();
    return held_count > before;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        bool (*act)(void);
    } acts[] = {
        {"garbage", send_garbage},
        {"floods",  flood       },
        {"lies",    lie         },
        {"hoards",  hoard       }
    };
    uint64_t done[4] = {0};
    if (argc != 4) {
        fprintf(stderr, "hostile FOLDER SECONDS SEED\n");
        return 2;
    }
    /* Reached through the folder's descriptor, however long its path is. */
    const int folder = open(argv[1], O_PATH | O_DIRECTORY);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", folder);
    const struct rlimit many = {CONNECTIONS_MAX + 64, CONNECTIONS_MAX + 64};
    setrlimit(RLIMIT_NOFILE, &many);
    seed = strtoull(argv[3], NULL, 10) * 2 + 1;
    for (const double end = seconds() + strtod(argv[2], NULL); seconds() < end;) {
        const uint64_t which = done[3] > 0 && any(10) ? any(3) : 3;
        if (acts[which].act())
            done[which]++;
        else
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* it is not let in for now */
    }
    let_go();
    for (int i = 0; i < 4; i++)
        printf("%s %" PRIu64 "\n", acts[i].name, done[i]);
    return 0;
}
