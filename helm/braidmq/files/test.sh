# What `helm test` runs: publish, share the work, read the files, by a topic of its own, which goes at the end.
set -eu
# After an installation without --wait brokers may be about to start. Helm gives this five minutes.
mq topic list --timeout 4m > /dev/null
topic="helm-test-$(date +%s%N)"
mq topic create "$topic"
trap 'mq topic delete "$topic" --yes' EXIT
printf 'one\ntwo\nthree\n' | mq publish "$topic"

same() {
    if [ "$2" != "$3" ]; then
        echo "$1: got '$2' instead of '$3'" >&2
        exit 1
    fi
    echo "$1: $2"
}
same "messages that a group worked on" "$(mq work "$topic" --group test --idle 3s -- sh -c 'echo "$(cat)"' | sort | tr '\n' ' ')" "one three two "
same "messages that the group is not done with" "$(mq group describe "$topic" test --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["lag"]["messages"])')" 0
same "messages in the files" "$(mq files cat "$topic" | wc -l | tr -d ' ')" 3
