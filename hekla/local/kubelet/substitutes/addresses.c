/* Gives programs the pod's own names, ports and host name where the pod has no network of its own.
 *
 * Loaded by LD_PRELOAD into what a container runs, on machines that lend pods no network namespace; compiled when the agent starts,
 * where there is a C compiler.  All pods share the machine's network then, each with a loopback address of its own.  Here
 *
 *   - names of $HEKLA_HOSTS become addresses (getaddrinfo and its elders),
 *   - a listener on every address or on 127.0.0.1, at a port that it names, listens on the pod's address, so that two pods may
 *     use the same port,
 *   - a connection to this machine goes to the pod's address if the pod listens there, as on a machine of its own,
 *   - a connection to another pod comes from the pod's address,
 *   - gethostname() answers $HEKLA_HOSTNAME.
 *
 * Listeners are those of TCP.  Nothing that ends elsewhere is changed; where anything is unclear the call goes through as it came.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* The pod's address in network order; 0 where it has none of its own. */
static in_addr_t own(void)
{
    const char *text = getenv("HEKLA_OWN_ADDRESS");
    struct in_addr address;
    return text && inet_pton(AF_INET, text, &address) == 1 ? address.s_addr : 0;
}

/* Whether the file of hosts has the name; its address is written to `found`. */
static int known(const char *name, char *found, size_t room)
{
    const char *path = getenv("HEKLA_HOSTS");
    char line[4096], *rest, *address, *word;
    FILE *file;
    int hit = 0, kept = errno;

    if (!name || !*name || !path || !(file = fopen(path, "re")))
        return 0;
    while (!hit && fgets(line, sizeof line, file)) {
        line[strcspn(line, "#\n")] = 0;
        address = strtok_r(line, " \t", &rest);
        while (address && !hit && (word = strtok_r(NULL, " \t", &rest)))
            if (!strcasecmp(word, name) && !strchr(address, ':') && strlen(address) < room) {
                strcpy(found, address);
                hit = 1;
            }
    }
    fclose(file);
    errno = kept;
    return hit;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    char address[INET_ADDRSTRLEN];
    struct addrinfo wanted;
    REAL(getaddrinfo);
    if (hints && hints->ai_family == AF_INET6 && !(hints->ai_flags & AI_V4MAPPED))
        return real(node, service, hints, result);
    if (!known(node, address, sizeof address))
        return real(node, service, hints, result);
    if (hints) {
        wanted = *hints;
        wanted.ai_flags &= ~(AI_CANONNAME | AI_ADDRCONFIG);  /* loopback does not count as an address there */
        hints = &wanted;
    }
    return real(address, service, hints, result);
}

#define BY_NAME(name, family) char address[INET_ADDRSTRLEN]; if ((family) == AF_INET && known(name, address, sizeof address)) name = address

struct hostent *gethostbyname(const char *name)
{
    REAL(gethostbyname);
    BY_NAME(name, AF_INET);
    return real(name);
}

struct hostent *gethostbyname2(const char *name, int family)
{
    REAL(gethostbyname2);
    BY_NAME(name, family);
    return real(name, family);
}

int gethostbyname_r(const char *name, struct hostent *entry, char *buffer, size_t room, struct hostent **result, int *error)
{
    REAL(gethostbyname_r);
    BY_NAME(name, AF_INET);
    return real(name, entry, buffer, room, result, error);
}

int gethostbyname2_r(const char *name, int family, struct hostent *entry, char *buffer, size_t room, struct hostent **result, int *error)
{
    REAL(gethostbyname2_r);
    BY_NAME(name, family);
    return real(name, family, entry, buffer, room, result, error);
}

int gethostname(char *name, size_t room)
{
    const char *told = getenv("HEKLA_HOSTNAME");
    REAL(gethostname);
    if (!told || !*told)
        return real(name, room);
    if (strlen(told) >= room) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(name, told);
    return 0;
}

int uname(struct utsname *names)
{
    const char *told = getenv("HEKLA_HOSTNAME");
    int done;
    REAL(uname);
    done = real(names);
    if (!done && told && *told && strlen(told) < sizeof names->nodename)
        strcpy(names->nodename, told);
    return done;
}

static int of_kind(int fd, int option, int wanted)
{
    int value = 0;
    socklen_t room = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &room) == 0 && value == wanted;
}

/* Whether somebody listens at the pod's address and this port: only its own programs can.
 *
 * The kernel is asked for the one socket that a connection would find there; reading /proc/net/tcp took 13 ms. */
static int listens(in_addr_t address, in_port_t port)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } asked = {
        .head = {.nlmsg_len = sizeof asked, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP, .idiag_states = -1},
    };
    union {
        struct nlmsghdr head;
        char room[1024];
    } answer;
    int hit = 0, kept = errno, fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    ssize_t length;

    asked.body.id.idiag_src[0] = address;
    asked.body.id.idiag_sport = port;
    asked.body.id.idiag_cookie[0] = asked.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (fd >= 0 && send(fd, &asked, sizeof asked, 0) == (ssize_t)sizeof asked
        && (length = recv(fd, &answer, sizeof answer, 0)) > 0 && NLMSG_OK(&answer.head, (size_t)length)
        && answer.head.nlmsg_type == SOCK_DIAG_BY_FAMILY) {
        const struct inet_diag_msg *found = NLMSG_DATA(&answer.head);
        int last = found->idiag_family == AF_INET6 ? 3 : 0;  /* where an address of IPv4 stands in one of IPv6 */
        hit = found->idiag_state == TCP_LISTEN && found->id.idiag_src[last] == address;  /* and not on every address */
    }
    if (fd >= 0)
        close(fd);
    errno = kept;
    return hit;
}

/* Whether an address is this machine's: its loopback, or one of its interfaces'. */
static int of_this_machine(in_addr_t address)
{
    struct ifaddrs *all, *one;
    int hit = address == htonl(INADDR_LOOPBACK), kept = errno;

    if (!hit && getifaddrs(&all) == 0) {
        for (one = all; one && !hit; one = one->ifa_next)
            hit = one->ifa_addr && one->ifa_addr->sa_family == AF_INET
                  && ((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr == address;
        freeifaddrs(all);
    }
    errno = kept;
    return hit;
}

/* The IPv4 address in a socket's address, also where it stands in one of IPv6. */
static int ipv4_of(const struct sockaddr *given, socklen_t length, in_addr_t *address, in_port_t *port)
{
    if (given && given->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        *address = ((const struct sockaddr_in *)given)->sin_addr.s_addr;
        *port = ((const struct sockaddr_in *)given)->sin_port;
        return 1;
    }
    if (given && given->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *wide = (const struct sockaddr_in6 *)given;
        *port = wide->sin6_port;
        if (IN6_IS_ADDR_V4MAPPED(&wide->sin6_addr))
            memcpy(address, wide->sin6_addr.s6_addr + 12, 4);
        else if (IN6_IS_ADDR_UNSPECIFIED(&wide->sin6_addr))
            *address = htonl(INADDR_ANY);
        else if (IN6_IS_ADDR_LOOPBACK(&wide->sin6_addr))
            *address = htonl(INADDR_LOOPBACK);
        else
            return 0;
        return 1;
    }
    return 0;
}

/* The same socket address with another IPv4 address in it. */
static const struct sockaddr *changed(const struct sockaddr *given, in_addr_t address, struct sockaddr_storage *room)
{
    if (given->sa_family == AF_INET) {
        *(struct sockaddr_in *)room = *(const struct sockaddr_in *)given;
        ((struct sockaddr_in *)room)->sin_addr.s_addr = address;
    } else {
        struct sockaddr_in6 *wide = (struct sockaddr_in6 *)room;
        *wide = *(const struct sockaddr_in6 *)given;
        memset(&wide->sin6_addr, 0, sizeof wide->sin6_addr);
        wide->sin6_addr.s6_addr[10] = wide->sin6_addr.s6_addr[11] = 0xff;
        memcpy(wide->sin6_addr.s6_addr + 12, &address, 4);
    }
    return (const struct sockaddr *)room;
}

/* Whether an IPv6 socket takes no IPv4 addresses. */
static int ipv6_only(int fd, const struct sockaddr *given)
{
    int value = 0;
    socklen_t room = sizeof value;
    return given->sa_family == AF_INET6 && (getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, &room) || value);
}

int bind(int fd, const struct sockaddr *given, socklen_t length)
{
    struct sockaddr_storage room;
    in_addr_t address, mine;
    in_port_t port;
    REAL(bind);
    if (ipv4_of(given, length, &address, &port) && port && (mine = own())
        && (address == htonl(INADDR_ANY) || address == htonl(INADDR_LOOPBACK))
        && of_kind(fd, SO_TYPE, SOCK_STREAM) && !ipv6_only(fd, given))
        given = changed(given, mine, &room);
    return real(fd, given, length);
}

/* A connection to another pod comes from this one's address, unless the program has chosen one. */
static void come_from(int fd, in_addr_t mine)
{
    struct sockaddr_in now, from = {.sin_family = AF_INET, .sin_addr = {mine}};
    socklen_t room = sizeof now;
    int later = 1, kept = errno;
    __typeof__(bind) *real_bind = (__typeof__(bind) *)dlsym(RTLD_NEXT, "bind");
    if (getsockname(fd, (struct sockaddr *)&now, &room) == 0 && now.sin_family == AF_INET && !now.sin_addr.s_addr && !now.sin_port) {
        setsockopt(fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &later, sizeof later);
        real_bind(fd, (struct sockaddr *)&from, sizeof from);
    }
    errno = kept;
}

int connect(int fd, const struct sockaddr *given, socklen_t length)
{
    struct sockaddr_storage room;
    in_addr_t address, mine;
    in_port_t port;
    REAL(connect);
    if (ipv4_of(given, length, &address, &port) && (mine = own()) && address != mine) {
        if (of_kind(fd, SO_TYPE, SOCK_STREAM) && !ipv6_only(fd, given) && listens(mine, port) && of_this_machine(address))
            given = changed(given, mine, &room);
        else if (given->sa_family == AF_INET && (ntohl(address) >> 24) == 127 && address != htonl(INADDR_LOOPBACK))
            come_from(fd, mine);
    }
    return real(fd, given, length);
}
