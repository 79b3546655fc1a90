#!/bin/sh
# Makes the keys and certificates of one system in a folder: what is there already stays as it is.
#
#   deploy/secrets.sh DIR [HOST,HOST,... [NAME,NAME,... [SITE=HOST,HOST,...]...]]
#
# HOST: the real hosts whose agents get a key each; without any, `-` or nothing, one key for agents of virtual hosts.
# NAME: names by which the servers of the log, the gateway and the console are reached, beside nats, clickhouse, gateway,
#       console, localhost.
# SITE: hosts, out of all, behind a server of their own, leaf-SITE. Sites are kept in DIR/sites: change or remove one there.
# Needs openssl, and tenure in the Python that PYTHON names (python3).
#
#   nats-ROLE.seed               each role's key for the log: give each role its own alone
#   users.conf                   what the log's servers are to know of them (public)
#   ca.crt, ca.key               who signs the certificates: keep ca.key elsewhere
#   nats.crt, nats.key           the log's servers
#   gateway.crt, gateway.key     the gateway
#   console.crt, console.key     the web console: what it shows to browsers, and to the gateway
#   admin.crt, admin.key         an admin's certificate, to begin with
#   runs.key, runs.pub           signs runs: the placer's; what agents believe
#   clickhouse-password          of ClickHouse's user tenure, and clickhouse-users.xml, which knows its hash
#   grafana-clickhouse-password  of ClickHouse's user grafana, who may only read
#   grafana-password             of Grafana's user admin
#
# and for the server of each SITE: leaf-SITE-users.conf (public), leaf-SITE.env with its key, leaf-SITE.crt, leaf-SITE.key
set -eu
umask 077
folder=${1:?usage: $0 DIR [HOST,HOST,... [NAME,NAME,... [SITE=HOST,HOST,...]...]]}
hosts=${2:-}
names=nats,clickhouse,gateway,console,localhost${3:+,$3}
cluster=${TENURE_CLUSTER:-tenure}
python=${PYTHON:-python3}
[ "$hosts" != - ] || hosts=

shift
[ $# -eq 0 ] || shift
[ $# -eq 0 ] || shift

mkdir -p "$folder"
touch "$folder/sites"
cp "$folder/sites" "$folder/sites.new"
for site do # of one name, the one given now counts
    name=${site%%=*}
    awk -F = -v name="$name" '$1 != name' "$folder/sites.new" > "$folder/sites.old"
    { cat "$folder/sites.old"; printf '%s\n' "$site"; } > "$folder/sites.new"
    rm "$folder/sites.old"
done
set --
while IFS= read -r site; do
    [ -z "$site" ] || set -- "$@" --site "$site"
done < "$folder/sites.new"

users() { # FILE, and what else to ask for
    file=$1
    shift
    "$python" -m tenure.log.permissions --cluster "$cluster" --keys "$folder" "$@" > "$folder/$file.new"
    mv "$folder/$file.new" "$folder/$file"
}
users users.conf --hosts "$hosts" "$@"
mv "$folder/sites.new" "$folder/sites"
sites=$(cut -d = -f 1 "$folder/sites")
for site in $sites; do
    users "leaf-$site-users.conf" --for-site "$site" "$@"
    printf 'TENURE_NATS_LEAF=%s\n' "$(cat "$folder/nats-leaf-$site.seed")" > "$folder/leaf-$site.env"
done
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
signed console "$alternatives"
signed admin "extendedKeyUsage=clientAuth"
for site in $sites; do
    signed "leaf-$site" "subjectAltName=DNS:leaf-$site"
    chmod 644 "leaf-$site.crt" "leaf-$site-users.conf"
done

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
chmod 644 ca.crt nats.crt gateway.crt console.crt admin.crt runs.pub users.conf clickhouse-users.xml
echo "in $folder: $(ls | wc -l) files; ca.key is needed only to sign more certificates: keep it elsewhere"
