# Four rxe devices on veth wires to one bridge, in one network namespace: two rails for each of two ends (rxe0 and rxe2,
# rxe1 and rxe3), each of which reaches both of the other's. All addresses are local, so routing rules send what goes
# from one to another over the wire; the outside is reached by hostfwd only.
ip link set lo up
outside=$(basename "$(ls -d /sys/bus/virtio/drivers/virtio_net/virtio*/net/* | head -1)")
ip addr add 10.0.2.15/24 dev "$outside" && ip link set "$outside" up || fail "no way to the host"
ip link add bridge0 mtu 4500 type bridge && ip link set bridge0 up || fail "no bridge"
for end in 0 1 2 3; do
    ip link add veth$end address 02:00:00:00:00:0$((end + 1)) type veth peer name port$end || fail "no veth"
    ip link set port$end mtu 4500 master bridge0 up
    ip link set veth$end mtu 4500 up
    ip addr add 10.77.0.$((end + 1))/24 dev veth$end
    for each in accept_local=1 rp_filter=0 arp_ignore=1; do
        echo "${each#*=}" > "/proc/sys/net/ipv4/conf/veth$end/${each%=*}"
    done
done
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
echo 0 > /proc/sys/net/ipv4/tcp_max_tw_buckets # a restarted agent takes the port of a dead one at once
for from in 1 2 3 4; do
    for to in 1 2 3 4; do
        [ $from = $to ] && continue
        device=veth$((from - 1))
        ip rule add pref 10 iif lo from 10.77.0.$from to 10.77.0.$to lookup 10$from
        ip rule add pref 12 iif lo oif $device to 10.77.0.$to lookup 10$from
        ip route add 10.77.0.$to dev $device src 10.77.0.$from table 10$from
        ip neigh add 10.77.0.$to lladdr 02:00:00:00:00:0$to dev $device nud permanent
    done
done
ip rule add pref 100 lookup local && ip rule del pref 0
for end in 0 1 2 3; do rdma link add rxe$end type rxe netdev veth$end || fail "no rxe device on veth$end"; done
nft -f /run/racelab/wire.nft || fail "no counters on the wire"
