/* A scripted engine that speaks vLLM's completions wire: one token per chunk, with its id.

   Promise: all running streams advance together, one token a step, as a batched engine's do. Paced, the steps lie on
   multiples of the period of CLOCK_MONOTONIC; unpaced, the next step begins when the last one is written.

       completions PORT PLAYBOOK COUNTER

   PLAYBOOK is a folder: `now` holds "NAME PERIOD_SECONDS" and is read at each request, `NAME.sse` holds the chunks.
   COUNTER is a file of eight bytes, mapped into memory: the tokens that were sent. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define ENDING 2 /* the usage and [DONE] go out in the step of the last token, the one that ends the turn */

typedef struct script {
    char name[64];
    int count;
    char **chunk;
    size_t *size;
    struct script *next;
} script;

typedef struct connection {
    int fd;
    char *in;
    size_t held, room;
    script *says;
    int at;        /* the chunk that is sent next */
    size_t offset; /* how much of it is sent */
    int place;     /* in the list of running streams */
} connection;

static const char *playbook;
static script *scripts;
static volatile uint64_t *sent;
static connection **running;
static int run_count, run_room, poller, ticker;
static double period;

static void fail(const char *what) { perror(what); exit(1); }

static void *grown(void *block, size_t size) {
    block = realloc(block, size);
    if (!block) fail("realloc");
    return block;
}

static script *load(const char *name) {
    for (script *s = scripts; s; s = s->next)
        if (!strcmp(s->name, name)) return s;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.sse", playbook, name);
    FILE *file = fopen(path, "r");
    if (!file) fail(path);
    script *s = calloc(1, sizeof *s);
    snprintf(s->name, sizeof s->name, "%s", name);
    char *line = NULL;
    size_t line_room = 0;
    ssize_t length;
    while ((length = getline(&line, &line_room, file)) > 0) {
        if (length == 1) continue; /* events are separated by an empty line */
        s->chunk = grown(s->chunk, (s->count + 1) * sizeof *s->chunk);
        s->size = grown(s->size, (s->count + 1) * sizeof *s->size);
        char *chunk = grown(NULL, length + 32);
        int head = sprintf(chunk, "%zx\r\n", (size_t)length + 1);
        memcpy(chunk + head, line, length);
        memcpy(chunk + head + length, "\n\r\n", 3);
        s->size[s->count] = head + length + 3;
        s->chunk[s->count++] = chunk;
    }
    free(line);
    fclose(file);
    s->next = scripts;
    return scripts = s;
}

static script *now_said(void) {
    char path[4096], name[64] = "";
    snprintf(path, sizeof path, "%s/now", playbook);
    FILE *file = fopen(path, "r");
    double wanted;
    if (!file || fscanf(file, "%63s %lf", name, &wanted) != 2) fail(path);
    fclose(file);
    if (wanted != period) {
        period = wanted;
        struct itimerspec clock = {0};
        if (period > 0) {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            int64_t each = (int64_t)(period * 1e9), now = t.tv_sec * 1000000000LL + t.tv_nsec;
            int64_t first = (now / each + 1) * each;
            clock.it_value = (struct timespec){first / 1000000000LL, first % 1000000000LL};
            clock.it_interval = (struct timespec){each / 1000000000LL, each % 1000000000LL};
        }
        timerfd_settime(ticker, TFD_TIMER_ABSTIME, &clock, NULL);
    }
    return load(name);
}

static int put(connection *c, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) { /* short answers only: streams keep an offset instead */
            usleep(100);
            continue;
        }
        if (n <= 0) return -1;
        data += n;
        size -= n;
    }
    return 0;
}

static int answer(connection *c, const char *status, const char *body) {
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", status,
                     strlen(body), body);
    return put(c, text, n);
}

static void stop(connection *c) {
    running[c->place] = running[--run_count];
    running[c->place]->place = c->place;
    c->says = NULL;
}

static void drop(connection *c) {
    if (c->says) stop(c);
    close(c->fd);
    free(c->in);
    free(c);
}

static int begin(connection *c) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    c->says = now_said();
    c->at = 0;
    c->offset = 0;
    if (run_count == run_room) running = grown(running, (run_room = run_room ? 2 * run_room : 64) * sizeof *running);
    c->place = run_count;
    running[run_count++] = c;
    return put(c, head, sizeof head - 1);
}

/* One chunk, or what is left of it. 0: sent whole; 1: the socket is full; -1: gone. */
static int push(connection *c) {
    const char *chunk = c->says->chunk[c->at];
    size_t size = c->says->size[c->at];
    while (c->offset < size) {
        ssize_t n = send(c->fd, chunk + c->offset, size - c->offset, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN ? 1 : -1;
        c->offset += n;
    }
    c->offset = 0;
    c->at++;
    return 0;
}

static int requests(connection *c);

/* How many streams moved. */
static int step(void) {
    int moved = 0;
    for (int i = 0; i < run_count; i++) {
        connection *c = running[i];
        int state = push(c);
        if (!state) ++*sent, ++moved;
        while (!state && c->at >= c->says->count - ENDING && c->at < c->says->count) state = push(c);
        if (!state && c->at == c->says->count) {
            stop(c);
            i--;
            state = put(c, "0\r\n\r\n", 5);
            if (!state) state = requests(c);
            if (state) drop(c);
        } else if (state < 0) {
            drop(c);
            i--;
        }
    }
    return moved;
}

/* Answers every whole request that is held. -1: the connection is to be dropped. */
static int requests(connection *c) {
    while (!c->says) {
        char *end = memmem(c->in, c->held, "\r\n\r\n", 4);
        if (!end) return 0;
        *end = 0;
        char *length = strcasestr(c->in, "\r\ncontent-length:");
        size_t head = end - c->in + 4, body = length ? strtoul(length + 17, NULL, 10) : 0;
        *end = '\r';
        if (c->held < head + body) return 0;
        int state;
        if (!strncmp(c->in, "POST /v1/completions ", 21)) {
            if (memmem(c->in + head, body, "\"stream\":true", 13)) {
                state = begin(c);
            } else {
                state = answer(c, "200 OK",
                               "{\"id\":\"probe\",\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":[0],"
                               "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,"
                               "\"total_tokens\":2}}");
            }
        } else if (!strncmp(c->in, "GET /v1/models ", 15)) {
            state = answer(c, "200 OK",
                           "{\"object\":\"list\",\"data\":[{\"id\":\"qwen3\",\"object\":\"model\",\"created\":1,"
                           "\"owned_by\":\"vllm\",\"max_model_len\":262144}]}");
        } else if (!strncmp(c->in, "GET /version ", 13)) {
            state = answer(c, "200 OK", "{\"version\":\"0.32.0\"}");
        } else if (!strncmp(c->in, "GET /health ", 12)) {
            state = answer(c, "200 OK", "{}");
        } else {
            state = answer(c, "404 Not Found", "{}");
        }
        c->held -= head + body;
        memmove(c->in, c->in + head + body, c->held);
        if (state) return -1;
    }
    return 0;
}

static void readable(connection *c) {
    for (;;) {
        if (c->held + 65536 > c->room) c->in = grown(c->in, (c->room = 2 * (c->held + 65536)) + 1);
        ssize_t n = recv(c->fd, c->in + c->held, c->room - c->held, 0);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) {
            drop(c);
            return;
        }
        c->held += n;
    }
    if (requests(c)) drop(c);
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: completions PORT PLAYBOOK COUNTER\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    playbook = arguments[2];
    int counter = open(arguments[3], O_RDWR);
    if (counter < 0) fail(arguments[3]);
    sent = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, counter, 0);
    if (sent == MAP_FAILED) fail("mmap");
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(door, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on); /* several of them can be one engine */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(door, (void *)&address, sizeof address) || listen(door, 4096)) fail("bind");
    poller = epoll_create1(0);
    ticker = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event watch = {.events = EPOLLIN, .data.ptr = &door};
    epoll_ctl(poller, EPOLL_CTL_ADD, door, &watch);
    watch.data.ptr = &ticker;
    epoll_ctl(poller, EPOLL_CTL_ADD, ticker, &watch);
    for (int moved = 0;;) {
        struct epoll_event events[256];
        int flat_out = run_count && period == 0, due = 0;
        /* Where every socket is full, a millisecond lets the other side read. */
        int ready = epoll_wait(poller, events, 256, !flat_out ? -1 : moved ? 0 : 1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr == &ticker) {
                uint64_t ticks;
                if (read(ticker, &ticks, sizeof ticks) > 0) due = 1;
            } else if (events[i].data.ptr == &door) {
                int fd;
                while ((fd = accept4(door, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    connection *c = calloc(1, sizeof *c);
                    c->fd = fd;
                    watch = (struct epoll_event){.events = EPOLLIN, .data.ptr = c};
                    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &watch);
                }
            } else {
                readable(events[i].data.ptr);
            }
        }
        if (due || flat_out) moved = step();
    }
}
