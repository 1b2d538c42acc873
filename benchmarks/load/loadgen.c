/* Opens event streams, reads them as fast as they come, and counts.

   Promise: about 2 µs of CPU for an event, so that a gateway on the same machine keeps the other core.

       loadgen PORT PATH BODY STREAMS turns COUNT              this many turns, STREAMS at a time
       loadgen PORT PATH BODY STREAMS window WARM SECONDS      counts for SECONDS

   A window begins, and "begin" is printed, WARM seconds after the start, or when each stream has said its first WORD, if
   that is later, but at the latest after six times as long.

   Environment: ENDING is the text that a whole answer holds, WORD the text that each token of interest holds, PERIOD the
   seconds between two such tokens of a stream; with it, lateness is reckoned against multiples of the period of
   CLOCK_MONOTONIC, the clock that the scripted engines step by. One line of JSON is printed at the end. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CARRY 64
#define READ (1 << 18)

typedef struct { const char *text; size_t size; } pattern;

typedef struct {
    int fd, status, whole;
    size_t sent, carried;
    char carry[CARRY];
    double opened, first, *moments;
    long words, kept, room;
} stream;

typedef struct { double *value; long count, room; } list;

static char *request, buffer[CARRY + READ];
static size_t request_size;
static int port, poller, counting;
static long started, finished, errors, cut, events, words, bytes;
static pattern event = {"\ndata:", 6}, word, ending;
static double period;
static list firsts, lateness;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) { perror(what); exit(1); }

static void add(list *l, double value) {
    if (l->count == l->room && !(l->value = realloc(l->value, (l->room = l->room ? 2 * l->room : 1024) * 8))) fail("realloc");
    l->value[l->count++] = value;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double part(list *l, double share) {
    return l->count ? l->value[(long)fmin(l->count - 1, l->count * share)] : 0;
}

static void open_stream(stream *s) {
    double *moments = s->moments;
    long room = s->room;
    *s = (stream){.moments = moments, .room = room};
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(s->fd, (void *)&address, sizeof address)) fail("connect");
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
    s->opened = now();
    started++;
    struct epoll_event watch = {.events = EPOLLIN | EPOLLOUT, .data.ptr = s};
    epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &watch);
}

/* The lateness of a stream's tokens: token i is due i periods after token 0, and the engine steps at multiples of the
   period, so the earliest token tells which multiple that is. */
static void settle(stream *s) {
    double least = INFINITY;
    for (long i = 0; i < s->kept; i++) least = fmin(least, s->moments[i]);
    double base = floor(least / period) * period;
    for (long i = 0; i < s->kept; i++) add(&lateness, s->moments[i] - base);
    s->kept = 0;
}

static void close_stream(stream *s) {
    if (s->status != 200) errors++;
    else if (!s->whole) cut++;
    add(&firsts, s->first ? s->first - s->opened : 0);
    if (period > 0) settle(s);
    finished++;
    close(s->fd);
    s->fd = -1;
}

static long matches(const char *text, size_t size, size_t carried, pattern p) {
    long found = 0;
    if (!p.size) return 0;
    const char *at = text + (carried > p.size - 1 ? carried - (p.size - 1) : 0), *end = text + size;
    while ((at = memmem(at, end - at, p.text, p.size))) {
        found++;
        at += p.size;
    }
    return found;
}

static void readable(stream *s) {
    char *text = buffer + CARRY - s->carried;
    ssize_t n = recv(s->fd, buffer + CARRY, READ, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        close_stream(s);
        return;
    }
    double at = now();
    memcpy(text, s->carry, s->carried);
    size_t size = s->carried + n;
    if (!s->status) {
        s->status = -1;
        sscanf(text, "HTTP/1.%*d %d", &s->status);
        if (s->status != 200 && errors < 3) fprintf(stderr, "%.*s\n", (int)fmin(size, 600), text);
    }
    long seen = matches(text, size, s->carried, word);
    if (seen && !s->first) s->first = at;
    if (counting) {
        bytes += n;
        events += matches(text, size, s->carried, event);
        words += seen;
        for (long i = 0; period > 0 && i < seen; i++) {
            if (s->kept == s->room && !(s->moments = realloc(s->moments, (s->room = s->room ? 2 * s->room : 256) * 8))) fail("realloc");
            s->moments[s->kept++] = at - (s->words + i) * period;
        }
    }
    s->words += seen;
    s->whole |= matches(text, size, s->carried, ending) > 0;
    if (size >= 5 && !memcmp(text + size - 5, "0\r\n\r\n", 5)) {
        close_stream(s);
        return;
    }
    s->carried = size < CARRY ? size : CARRY;
    memcpy(s->carry, text + size - s->carried, s->carried);
}

static void writable(stream *s) {
    ssize_t n = send(s->fd, request + s->sent, request_size - s->sent, MSG_NOSIGNAL);
    if (n > 0) s->sent += n;
    if (s->sent == request_size) {
        struct epoll_event watch = {.events = EPOLLIN, .data.ptr = s};
        epoll_ctl(poller, EPOLL_CTL_MOD, s->fd, &watch);
    }
}

static void prepare(const char *path, const char *body_file) {
    FILE *file = fopen(body_file, "r");
    if (!file) fail(body_file);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    request = malloc(size + 1024);
    request_size = sprintf(request,
                           "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                           "Authorization: Bearer bench\r\nanthropic-version: 2023-06-01\r\nConnection: close\r\n"
                           "Content-Length: %zu\r\n\r\n",
                           path, port, size);
    if (fread(request + request_size, 1, size, file) != size) fail(body_file);
    request_size += size;
    fclose(file);
}

static int speaking(stream *streams, int width) {
    for (int i = 0; i < width; i++)
        if (!streams[i].first) return 0;
    return 1;
}

static pattern from_environment(const char *name) {
    const char *text = getenv(name);
    return (pattern){text, text ? strlen(text) : 0};
}

int main(int count, char **arguments) {
    if (count < 7) {
        fprintf(stderr, "usage: loadgen PORT PATH BODY STREAMS turns COUNT | window WARM SECONDS\n");
        return 2;
    }
    port = atoi(arguments[1]);
    prepare(arguments[2], arguments[3]);
    int width = atoi(arguments[4]), window = !strcmp(arguments[5], "window");
    long wanted = window ? 1L << 40 : atol(arguments[6]);
    double warm = window ? atof(arguments[6]) : 0, seconds = window ? atof(arguments[7]) : INFINITY;
    word = from_environment("WORD");
    ending = from_environment("ENDING");
    period = getenv("PERIOD") ? atof(getenv("PERIOD")) : 0;
    counting = !window;
    poller = epoll_create1(0);
    stream *streams = calloc(width, sizeof *streams);
    double begun = now(), counted_from = begun;
    for (int i = 0; i < width && started < wanted; i++) open_stream(&streams[i]);
    while (finished < wanted) {
        struct epoll_event ready[256];
        int n = epoll_wait(poller, ready, 256, window ? 20 : 60000);
        if (n == 0 && !window) {
            fprintf(stderr, "nothing came for a minute: %ld of %ld turns\n", finished, wanted);
            return 1;
        }
        for (int i = 0; i < n; i++) {
            stream *s = ready[i].data.ptr;
            if (s->sent < request_size && ready[i].events & EPOLLOUT) writable(s);
            if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(s);
            if (s->fd < 0 && started < wanted) open_stream(s);
        }
        double at = now();
        if (window && !counting && at - begun >= warm && (speaking(streams, width) || at - begun >= 6 * warm)) {
            counting = 1;
            counted_from = at;
            printf("begin\n");
            fflush(stdout);
        }
        if (counting && at - counted_from >= seconds) break;
    }
    double wall = now() - counted_from;
    printf("end\n"); /* the reader takes the gateway's CPU time here, before any stream is closed */
    fflush(stdout);
    long open_words = 0;
    for (int i = 0; i < width; i++) {
        if (streams[i].fd < 0) continue;
        open_words += streams[i].words > 0;
        if (streams[i].first) add(&firsts, streams[i].first - streams[i].opened);
        if (period > 0) settle(&streams[i]);
    }
    qsort(firsts.value, firsts.count, 8, by_size);
    qsort(lateness.value, lateness.count, 8, by_size);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"seconds\":%.4f,\"turns\":%ld,\"errors\":%ld,\"cut\":%ld,\"speaking\":%ld,\"events\":%ld,\"words\":%ld,\"bytes\":%ld,"
           "\"first_ms\":[%.3f,%.3f,%.3f],\"late_ms\":[%.3f,%.3f,%.3f,%.3f],\"cpu_s\":%.3f}\n",
           wall, finished, errors, cut, open_words, events, words, bytes, part(&firsts, 0) * 1e3, part(&firsts, .5) * 1e3,
           part(&firsts, .99) * 1e3, part(&lateness, .5) * 1e3, part(&lateness, .9) * 1e3, part(&lateness, .99) * 1e3,
           part(&lateness, 1) * 1e3,
           used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6);
    return errors || cut;
}
