# Two rxe devices on the ends of a veth wire, in one network namespace. Both addresses are local, so routing rules
# send what goes from one to the other over the wire; the outside is reached by hostfwd only.
ip link set lo up
outside=$(basename "$(ls -d /sys/bus/virtio/drivers/virtio_net/virtio*/net/* | head -1)")
ip addr add 10.0.2.15/24 dev "$outside" && ip link set "$outside" up || fail "no way to the host"
ip link add veth0 address 02:00:00:00:00:01 type veth peer name veth1 address 02:00:00:00:00:02 || fail "no veth"
for end in 0 1; do
    ip link set veth$end mtu 4500 up
    ip addr add 10.77.0.$((end + 1))/24 dev veth$end
    for each in accept_local=1 rp_filter=0 arp_ignore=1; do
        echo "${each#*=}" > "/proc/sys/net/ipv4/conf/veth$end/${each%=*}"
    done
done
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
echo 0 > /proc/sys/net/ipv4/tcp_max_tw_buckets # a restarted agent takes the port of a dead one at once
ip rule add pref 10 iif lo from 10.77.0.1 to 10.77.0.2 lookup 101
ip rule add pref 11 iif lo from 10.77.0.2 to 10.77.0.1 lookup 102
ip rule add pref 12 iif lo oif veth0 to 10.77.0.2 lookup 101
ip rule add pref 13 iif lo oif veth1 to 10.77.0.1 lookup 102
ip rule add pref 100 lookup local && ip rule del pref 0
ip route add 10.77.0.2 dev veth0 src 10.77.0.1 table 101
ip route add 10.77.0.1 dev veth1 src 10.77.0.2 table 102
ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev veth0 nud permanent
ip neigh add 10.77.0.1 lladdr 02:00:00:00:00:01 dev veth1 nud permanent
for end in 0 1; do rdma link add rxe$end type rxe netdev veth$end || fail "no rxe device on veth$end"; done
nft -f /run/racelab/wire.nft || fail "no counters on the wire"
