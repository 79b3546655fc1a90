#!/bin/sh
# Makes the keys and certificates of one system in a folder: what is there already stays as it is.
#
#   deploy/secrets.sh DIR [HOST,HOST,... [NAME,NAME,...]]
#
# HOST: the real hosts whose agents get a key each; without any, `-` or nothing, one key for agents of virtual hosts.
# NAME: names by which the servers of the log and the gateway are reached, beside nats, clickhouse, gateway, localhost.
# Needs openssl, and tenure in the Python that PYTHON names (python3).
#
#   nats-ROLE.seed               each role's key for the log: give each role its own alone
#   users.conf                   what the log's servers are to know of them (public)
#   ca.crt, ca.key               who signs the certificates: keep ca.key elsewhere
#   nats.crt, nats.key           the log's servers
#   gateway.crt, gateway.key     the gateway
#   admin.crt, admin.key         an admin's certificate, to begin with
#   runs.key, runs.pub           signs runs: the placer's; what agents believe
#   clickhouse-password          of ClickHouse's user tenure, and clickhouse-users.xml, which knows its hash
#   grafana-clickhouse-password  of ClickHouse's user grafana, who may only read
#   grafana-password             of Grafana's user admin
set -eu
umask 077
folder=${1:?usage: $0 DIR [HOST,HOST,... [NAME,NAME,...]]}
hosts=${2:-}
names=nats,clickhouse,gateway,localhost${3:+,$3}
cluster=${TENURE_CLUSTER:-tenure}
python=${PYTHON:-python3}
[ "$hosts" != - ] || hosts=

mkdir -p "$folder"
"$python" -m tenure.log.permissions --cluster "$cluster" --hosts "$hosts" --keys "$folder" > "$folder/users.conf.new"
mv "$folder/users.conf.new" "$folder/users.conf"
cd "$folder"

new_key() { # FILE
    [ -s "$1" ] || openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}

signed() { # NAME EXTENSIONS: a certificate of the authority with that common name
    new_key "$1.key"
    if [ ! -s "$1.crt" ]; then
        printf '%s\n' "$2" > "$1.ext"
        openssl req -new -key "$1.key" -subj "/CN=$1" |
            openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 825 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
        rm "$1.ext"
    fi
}

password() { # FILE
    [ -s "$1" ] || openssl rand -hex 24 > "$1"
}

new_key ca.key
[ -s ca.crt ] || openssl req -x509 -new -key ca.key -subj "/CN=tenure" -days 3650 -out ca.crt
alternatives="subjectAltName=IP:127.0.0.1,DNS:$(echo "$names" | sed 's/,/,DNS:/g')"
signed nats "$alternatives"
signed gateway "$alternatives"
signed admin "extendedKeyUsage=clientAuth"

[ -s runs.key ] || openssl genpkey -algorithm ed25519 -out runs.key
openssl pkey -in runs.key -pubout -out runs.pub
password clickhouse-password
password grafana-clickhouse-password
password grafana-password

hash_of() { # FILE: of the password in its first line
    tr -d '\n' < "$1" | openssl dgst -sha256 -r | cut -d ' ' -f 1
}
cat > clickhouse-users.xml <<USERS
<clickhouse>
  <profiles><tenure_reads><readonly>2</readonly></tenure_reads></profiles>
  <users>
    <default remove="1"/>
    <tenure>
      <password_sha256_hex>$(hash_of clickhouse-password)</password_sha256_hex>
      <networks><ip>::/0</ip></networks>
      <profile>default</profile><quota>default</quota>
    </tenure>
    <grafana>
      <password_sha256_hex>$(hash_of grafana-clickhouse-password)</password_sha256_hex>
      <networks><ip>::/0</ip></networks>
      <profile>tenure_reads</profile><quota>default</quota>
      <grants><query>GRANT SELECT ON tenure.*</query></grants>
    </grafana>
  </users>
</clickhouse>
USERS
chmod 644 ca.crt nats.crt gateway.crt admin.crt runs.pub users.conf clickhouse-users.xml
echo "in $folder: $(ls | wc -l) files; ca.key is needed only to sign more certificates: keep it elsewhere"
