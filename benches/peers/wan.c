/* Sites that reach each other over slow links, for kernels without netem: one TUN device in each
 * network namespace, all tied together by this process. A site has a rate in each direction, with a
 * queue of 200 ms that drops what does not fit, and packets take half the round trip on the way.
 *
 *     cc -O2 -o wan wan.c && ./wan RATE_MBIT RTT_MS NAMESPACE...
 *
 * Site number i, from 1, is 10.77.0.i. Prints "up" when all devices are there, and runs until it is
 * killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { SITES = 16, QUEUED = 1 << 14, MTU = 1500, BATCH = 64 };

struct packet {
    int64_t due;
    int length, to;
    unsigned char bytes[MTU];
};

/* In the order in which they are due. */
struct queue {
    struct packet *packets;
    unsigned first, end;
    int64_t busy_until;
};

static double nanoseconds_per_byte;
static int64_t delay;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int open_device(const char *name, int site) {
    char text[256];
    snprintf(text, sizeof text, "/var/run/netns/%s", name);
    int space = open(text, O_RDONLY);
    if (space < 0 || setns(space, CLONE_NEWNET)) fail(text);
    close(space);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "wan"};
    if (device < 0 || ioctl(device, TUNSETIFF, &request)) fail("/dev/net/tun");
    snprintf(text, sizeof text,
             "ip addr add 10.77.0.%d/24 dev wan && ip link set wan mtu %d up && ip link set lo up", site, MTU);
    if (system(text)) fail(text);
    return device;
}

/* A place for a packet that is sent at a time, behind all that wait for the same link; NULL where the
 * link has too many. */
static struct packet *put(struct queue *queue, int64_t at, int length) {
    if (queue->busy_until < at) queue->busy_until = at;
    if (queue->busy_until - at > 200000000LL || queue->end - queue->first >= QUEUED) return NULL;
    queue->busy_until += (int64_t)(length * nanoseconds_per_byte);
    struct packet *packet = &queue->packets[queue->end++ % QUEUED];
    packet->due = queue->busy_until;
    packet->length = length;
    return packet;
}

static struct packet *front(struct queue *queue) {
    return queue->first == queue->end ? NULL : &queue->packets[queue->first % QUEUED];
}

static void receive(int device, struct queue *up, int sites) {
    unsigned char bytes[MTU];
    for (int count = 0; count < BATCH; count++) {
        int length = (int)read(device, bytes, sizeof bytes);
        if (length < 20) return;
        int to = bytes[19] - 1; /* the last byte of an IPv4 destination */
        if (bytes[0] >> 4 != 4 || to < 0 || to >= sites) continue;
        struct packet *packet = put(up, now(), length);
        if (!packet) continue;
        packet->due += delay;
        packet->to = to;
        memcpy(packet->bytes, bytes, (size_t)length);
    }
}

int main(int count, char **values) {
    int sites = count - 3, devices[SITES];
    if (sites < 2 || sites > SITES) {
        fprintf(stderr, "usage: wan RATE_MBIT RTT_MS NAMESPACE...\n");
        return 2;
    }
    nanoseconds_per_byte = 8000 / atof(values[1]);
    delay = (int64_t)(atof(values[2]) * 1e6 / 2);
    static struct queue up[SITES], down[SITES];
    static struct pollfd polled[SITES];
    for (int i = 0; i < sites; i++) {
        devices[i] = open_device(values[3 + i], i + 1);
        polled[i] = (struct pollfd){.fd = devices[i], .events = POLLIN};
        up[i].packets = calloc(QUEUED, sizeof(struct packet));
        down[i].packets = calloc(QUEUED, sizeof(struct packet));
        if (!up[i].packets || !down[i].packets) fail("memory");
    }
    printf("up\n");
    fflush(stdout);
    for (;;) {
        int64_t next = now() + 1000000000LL;
        for (int i = 0; i < sites; i++) {
            receive(devices[i], &up[i], sites);
            struct packet *packet;
            while ((packet = front(&up[i])) && packet->due <= now()) {
                struct packet *last = put(&down[packet->to], packet->due, packet->length);
                if (last) memcpy(last->bytes, packet->bytes, (size_t)packet->length);
                up[i].first++;
            }
            if (packet && packet->due < next) next = packet->due;
        }
        for (int i = 0; i < sites; i++) {
            struct packet *packet;
            while ((packet = front(&down[i])) && packet->due <= now()) {
                if (write(devices[i], packet->bytes, (size_t)packet->length) < 0 && errno == EAGAIN) break;
                down[i].first++;
            }
            if (packet && packet->due < next) next = packet->due;
        }
        int64_t rest = next - now();
        struct timespec wait = {rest / 1000000000LL, rest % 1000000000LL};
        if (rest > 0 && ppoll(polled, (nfds_t)sites, &wait, NULL) < 0 && errno != EINTR) fail("ppoll");
    }
}
