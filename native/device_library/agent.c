/*
 * The conversation on the socket:
 *
 *   agent              daemon
 *   HELLO        ->
 *                <-    WELCOME          from now on the gates follow the page
 *   WANT         ->                     sent by the thread that waits
 *                <-    CLOSING          the gate was closed: drain
 *   DRAINED      ->                     with the time at which the GPU was done
 *                <-    WATCH            the gate is open: send IDLE when it is not needed
 *   IDLE         ->
 *
 * When the connection ends there is no daemon to close the gates in the page:
 * the gates leave the page, and the process times itself (duty.c) until a
 * daemon welcomes it again.
 */
#include "agent.h"

#include "context.h"
#include "gate/drain.h"
#include "gate/duty.h"
#include "gate/gate.h"
#include "gate/meter.h"
#include "lock.h"
#include "lookup/loader.h"
#include "mps.h"
#include "session.h"
#include "system.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define STACK_BYTES      ((size_t)1 << 20) /* the driver runs on it too */
#define SHORTEST_RETRY   (100 * KS_MILLISECOND)
#define LONGEST_RETRY    (5 * KS_SECOND)
#define WELCOME_TIMEOUT  1000 /* ms */
#define IDLE_AFTER       (3 * KS_MILLISECOND)
#define IDLE_WHEN_ALONE  (50 * KS_MILLISECOND)
#define WATCH_INTERVAL   KS_MILLISECOND /* between two checks for idle time */
#define NEVER            INT64_MAX
#define LOOK_INTERVAL    KS_SECOND /* a wait does not end when the program closes the connection */
#define QUIET            KS_SECOND
#define PROTOCOL_OF_BUSY 2u

#define SHORTEST_CHECK (20 * KS_MILLISECOND / 1000) /* between two checks of a drain */
#define LONGEST_CHECK  (100 * KS_MILLISECOND / 1000)
#define TIMER_SLACK_NS 1

/* A gate that is closing: DRAINED is due when the GPU is done, unless the gate opens again. */
struct closing {
    bool on;
    uint32_t epoch;
    int64_t since;
    int64_t reported; /* when BUSY was last sent, or the start */
};

/* A cell of which the daemon wants to know when it is idle. */
struct watch {
    bool on;
    uint32_t epoch;
    uint64_t launches; /* at the last check */
    int64_t since;     /* when that number last changed */
};

static atomic_int started; /* 0 no, 1 being started, 2 yes */
static ks_lock connection_lock;
static struct ks_descriptor connection = {.number = -1};
static _Atomic uint64_t wanted[KS_CELLS_MAX]; /* epoch + 1 for which WANT was sent */
static bool daemon_knows_busy;
static bool barrier_is_settled; /* the kernel was asked for it */
static struct closing closings[KS_CELLS_MAX];
static struct watch watches[KS_CELLS_MAX];

/* ---- messages -------------------------------------------------------------- */

static bool send_message(enum ks_message_type type, unsigned cell, uint32_t epoch, int64_t time,
                         uint64_t value) {
    const struct ks_message message = {
        .version = KS_WIRE_VERSION,
        .type = (uint16_t)type,
        .cell = cell,
        .epoch = epoch,
        .pid = (uint32_t)getpid(),
        .time_ns = (uint64_t)time,
        .value = value,
    };
    const int cancel = ks_forbid_cancel();
    ks_acquire(&connection_lock, KS_LOCK_CONNECTION);
    const bool sent = ks_descriptor_is_ours(&connection) &&
                      send(connection.number, &message, sizeof message,
                           MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof message;
    ks_release(&connection_lock);
    ks_allow_cancel(cancel);
    return sent;
}

void ks_agent_want(unsigned cell, uint32_t epoch) {
    const uint64_t mark = (uint64_t)epoch + 1;
    if (atomic_exchange(&wanted[cell], mark) == mark)
        return;
    if (!send_message(KS_WANT, cell, epoch, ks_now(), ks_cells_in_use()))
        atomic_store(&wanted[cell], 0);
}

/* A message from the daemon, of which there is one; false if the connection ended or the message
 * has another version. */
static bool receive_message(struct ks_message *message) {
    ssize_t size;
    do
        size = ks_descriptor_is_ours(&connection)
                   ? recv(connection.number, message, sizeof *message, MSG_DONTWAIT)
                   : 0;
    while (size < 0 && errno == EINTR);
    return size == (ssize_t)sizeof *message && message->version == KS_WIRE_VERSION;
}

/* ---- drained and idle ------------------------------------------------------- */

static void start_closing(unsigned cell, uint32_t epoch) {
    watches[cell].on = false;
    ks_meter_set(cell, true);
    ks_marks_barrier();
    const int64_t now = ks_now();
    closings[cell] = (struct closing){.on = true, .epoch = epoch, .since = now, .reported = now};
}

/* Work may be waiting for a launch that is gated. The daemon gives up first and opens the gate
 * again, which withdraws its question. */
static bool is_asked_again(unsigned cell, uint32_t epoch) {
    const struct ks_page_cell *page = ks_session_cell(cell);
    return atomic_load((const atomic_uint *)&page->epoch) != epoch &&
           atomic_load((const atomic_uint *)&page->gate_state) == KS_GATE_OPEN;
}

/* Returns after how long to check again. */
static int64_t step_closing(unsigned cell) {
    struct closing *closing = &closings[cell];
    int64_t end;
    if (closing->on && is_asked_again(cell, closing->epoch))
        closing->on = false;
    if (!closing->on)
        return NEVER;
    if (!ks_is_launching(cell) && ks_settle(cell, &end)) {
        closing->on = false;
        send_message(KS_DRAINED, cell, closing->epoch, end, 0);
        return NEVER;
    }
    const int64_t now = ks_now();
    if (now - closing->reported > KS_BUSY_INTERVAL_NS && daemon_knows_busy) {
        closing->reported = now;
        send_message(KS_BUSY, cell, closing->epoch, now, 0);
    }
    const int64_t pause = (now - closing->since) / 32;
    return pause < SHORTEST_CHECK ? SHORTEST_CHECK : pause < LONGEST_CHECK ? pause : LONGEST_CHECK;
}

static void start_watch(unsigned cell, uint32_t epoch) {
    watches[cell] = (struct watch){
        .on = true, .epoch = epoch, .launches = ks_launches(cell), .since = ks_now()};
}

/* A watch ends with its epoch. */
static bool is_on(unsigned cell) {
    const atomic_uint *epoch = (const atomic_uint *)&ks_session_cell(cell)->epoch;
    if (watches[cell].on && atomic_load(epoch) != watches[cell].epoch)
        watches[cell].on = false;
    return watches[cell].on;
}

/* While no other session wants the GPU, a pause of a few milliseconds is no reason to give it up
 * and wait for it again. */
static int64_t idle_after(unsigned cell) {
    return ks_meter_is_on(cell) ? IDLE_AFTER : IDLE_WHEN_ALONE;
}

static bool is_in_use(unsigned cell, uint64_t launches) {
    return ks_launches(cell) != launches || ks_is_launching(cell) || ks_meter_is_waited_for(cell);
}

static void step_watch(unsigned cell) {
    struct watch *watch = &watches[cell];
    int64_t end;
    if (is_in_use(cell, watch->launches)) {
        watch->launches = ks_launches(cell);
        watch->since = ks_now();
        return;
    }
    /* The event is recorded at once, while the GPU is still busy: it then has the time at which the
     * work ended, not that of the next check. */
    if (!ks_settle(cell, &end))
        return;
    const int64_t idle_since = end > watch->since ? end : watch->since;
    if (ks_now() - idle_since >= idle_after(cell) && is_on(cell) &&
        !is_in_use(cell, watch->launches)) {
        watch->on = false;
        send_message(KS_IDLE, cell, watch->epoch, end, 0);
    }
}

/* The kernel takes some milliseconds for this, in which this thread answers nobody. So it waits
 * until the daemon has sent nothing for a while: launches do not take the fast path before that.
 * Returns after how long to check again. */
static int64_t step_barrier(int64_t heard) {
    if (barrier_is_settled)
        return NEVER;
    const int64_t left = heard + QUIET - ks_now();
    if (left > 0)
        return left;
    barrier_is_settled = true;
    ks_marks_leave_barrier();
    return NEVER;
}

/* Returns after how long to check again. */
static int64_t step_all(void) {
    int64_t next = NEVER;
    for (unsigned cell = 0; cell < ks_session_cells(); cell++) {
        const int64_t again = step_closing(cell);
        if (is_on(cell))
            step_watch(cell);
        next = again < next ? again : next;
        const int64_t look = ks_meter_is_on(cell) ? WATCH_INTERVAL : IDLE_WHEN_ALONE / 5;
        next = watches[cell].on && look < next ? look : next;
    }
    return next;
}

/* ---- the connection ---------------------------------------------------------- */

static void disconnect(void) {
    ks_acquire(&connection_lock, KS_LOCK_CONNECTION);
    ks_descriptor_close(&connection);
    ks_release(&connection_lock);
}

static bool connect_and_greet(void) {
    struct ks_message answer;
    const int made = ks_session_connect();
    if (made < 0)
        return false;
    ks_acquire(&connection_lock, KS_LOCK_CONNECTION);
    connection = ks_descriptor_of(made);
    ks_release(&connection_lock);
    struct pollfd readable = {.fd = made, .events = POLLIN};
    if (send_message(KS_HELLO, 0, KS_PROTOCOL_NEWEST, ks_now(), KS_PROTOCOL_OLDEST) &&
        poll(&readable, 1, WELCOME_TIMEOUT) > 0 && receive_message(&answer) &&
        answer.type == KS_WELCOME) {
        daemon_knows_busy = answer.value >= PROTOCOL_OF_BUSY;
        return true;
    }
    ks_debug("the token daemon did not welcome this process");
    disconnect();
    return false;
}

static void handle(const struct ks_message *message) {
    if (message->cell >= ks_session_cells())
        return;
    if (message->type == KS_CLOSING)
        start_closing(message->cell, message->epoch);
    else if (message->type == KS_WATCH)
        start_watch(message->cell, message->epoch);
}

static void start_serving(void) {
    for (unsigned cell = 0; cell < KS_CELLS_MAX; cell++) {
        atomic_store(&wanted[cell], 0);
        watches[cell] = (struct watch){0};
        closings[cell] = (struct closing){0};
    }
    ks_gates_follow_page(true);
    ks_debug("welcomed by the token daemon");
}

static void serve(void) {
    struct ks_message message;
    struct pollfd readable = {.fd = connection.number, .events = POLLIN};
    int64_t heard = ks_now();
    start_serving();
    while (ks_descriptor_is_ours(&connection)) {
        const int64_t again = step_all(), settled = step_barrier(heard);
        const int64_t pause = again < settled ? again : settled;
        const struct timespec timeout = ks_timespec(pause < LOOK_INTERVAL ? pause : LOOK_INTERVAL);
        const int ready = ppoll(&readable, 1, &timeout, NULL);
        if (ready < 0 && errno != EINTR)
            return;
        if (ready > 0) {
            if (!receive_message(&message) || message.type == KS_REFUSED)
                return;
            heard = ks_now();
            handle(&message);
        }
    }
}

/* An eighth of the time for which the daemon has been away: a daemon that restarts is found soon,
 * one that stays away costs little. */
static int64_t retry_after(int64_t away) {
    const int64_t pause = away / 8;
    return pause < SHORTEST_RETRY ? SHORTEST_RETRY : pause < LONGEST_RETRY ? pause : LONGEST_RETRY;
}

static void *run(void *unused) {
    int64_t last_met = ks_now();
    prctl(PR_SET_NAME, "kubeshare");
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    ks_mps_warn();
    for (unsigned cell = 0; cell < ks_session_cells(); cell++)
        ks_meter_set(cell, true);
    for (;;) {
        if (connect_and_greet()) {
            serve();
            disconnect();
            last_met = ks_now();
        }
        ks_debug("no token daemon: this process times itself");
        const int64_t now = ks_now();
        ks_duty_until(now + retry_after(now - last_met));
    }
    return unused;
}

/* ---- the thread ---------------------------------------------------------------- */

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int stack_size_function(pthread_attr_t *, size_t);

/* All signals are blocked: they are for the application's own threads. */
static bool create_thread(void) {
    create_function *create = (create_function *)ks_libc_symbol("pthread_create");
    stack_size_function *set_stack_size =
        (stack_size_function *)ks_libc_symbol("pthread_attr_setstacksize");
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (create == NULL || set_stack_size == NULL || pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    set_stack_size(&attributes, STACK_BYTES);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const bool created = create(&thread, &attributes, run, NULL) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return created;
}

bool ks_agent_start(void) {
    if (atomic_load_explicit(&started, memory_order_acquire) == 2)
        return true;
    int none = 0;
    if (!atomic_compare_exchange_strong(&started, &none, 1))
        return true; /* another thread starts it */
    if (create_thread()) {
        atomic_store(&started, 2);
        return true;
    }
    ks_debug("the agent's thread cannot be started: no GPU may be used");
    atomic_store(&started, 0);
    return false;
}

void ks_agent_forget(void) {
    ks_descriptor_close(&connection);
    connection_lock = (ks_lock){0};
    memset(watches, 0, sizeof watches);
    memset(closings, 0, sizeof closings);
    barrier_is_settled = false;
    atomic_store(&started, 0);
}
