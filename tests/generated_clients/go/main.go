// The program of the test, with the generated client.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"braidmq.example/generated/braidmq"
)

const topic, group = "birds", "keepers"

// check ends the program if there is a problem, or an error of the connection.
func check(err error, problem *braidmq.Problem) {
	if problem != nil {
		err = fmt.Errorf("%s: %s", problem.Type, problem.Detail)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func of[T any](value T) *T { return &value }

// claimed claims messages until there is one of that key.
func claimed(ctx context.Context, client *braidmq.ClientWithResponses, key string) braidmq.ClaimedMessage {
	for {
		claims, err := client.ClaimWithResponse(ctx, topic, group, braidmq.ClaimBody{Max: of(1), Wait: of(10.0)})
		check(err, nil)
		check(nil, claims.ApplicationproblemJSON4XX)
		for _, message := range claims.JSON200.Messages {
			if message.Key != nil && *message.Key == key {
				return message
			}
		}
	}
}

func publish(ctx context.Context, client *braidmq.ClientWithResponses, message braidmq.OutgoingMessage) {
	body := braidmq.PublishBody{Messages: []braidmq.OutgoingMessage{message}}
	published, err := client.PublishWithResponse(ctx, topic, nil, body)
	check(err, nil)
	check(nil, published.ApplicationproblemJSON4XX)
}

func header(headers map[string]braidmq.HeaderValue, name string) string {
	text, err := headers[name].AsHeaderValue0()
	check(err, nil)
	return text
}

func main() {
	ctx := context.Background()
	client, err := braidmq.NewClientWithResponses(os.Args[1])
	check(err, nil)

	settings := braidmq.TopicBody{Segments: of(1), Retention: &braidmq.PartialRetention{Seconds: of(3600.0)}}
	made, err := client.PutTopicWithResponse(ctx, topic, nil, settings)
	check(err, nil)
	check(nil, made.ApplicationproblemJSON4XX)
	if made.JSON201 == nil || *made.JSON201.Config.Retention.Seconds != 3600 {
		check(fmt.Errorf("the topic is another one"), nil)
	}

	var trace braidmq.HeaderValue
	check(trace.FromHeaderValue0("7f"), nil)
	publish(ctx, client, braidmq.OutgoingMessage{
		Key:          of("heron"),
		Value:        map[string]string{"at": "dusk"},
		Headers:      &map[string]braidmq.HeaderValue{"trace": trace},
		DelaySeconds: of(0.2),
	})
	heron := claimed(ctx, client, "heron")
	acks := braidmq.AckBody{Messages: []braidmq.ClaimPart{{Claim: heron.Claim, Id: &heron.Id}}}
	acked, err := client.AckWithResponse(ctx, topic, group, acks)
	check(err, nil)
	check(nil, acked.ApplicationproblemJSON4XX)

	publish(ctx, client, braidmq.OutgoingMessage{Key: of("stone"), Value: "12 kg"})
	stone := claimed(ctx, client, "stone")
	released, err := client.ReleaseWithResponse(ctx, topic, group, braidmq.ReleaseBody{
		Messages: []braidmq.ClaimPart{{Claim: stone.Claim}}, Dead: of(true), Reason: of("too heavy"),
	})
	check(err, nil)
	check(nil, released.ApplicationproblemJSON4XX)

	var dead []string
	for len(dead) == 0 {
		letters, err := client.ListGroupMessagesWithResponse(
			ctx, topic, group, &braidmq.ListGroupMessagesParams{State: braidmq.Dead},
		)
		check(err, nil)
		check(nil, letters.ApplicationproblemJSON4XX)
		for _, letter := range letters.JSON200.Messages {
			dead = append(dead, header(letter.Headers, "braid-dead-reason"))
		}
	}
	redriven, err := client.RedriveWithResponse(ctx, topic, group, braidmq.RedriveBody{Max: of(10)})
	check(err, nil)
	check(nil, redriven.ApplicationproblemJSON4XX)
	again := claimed(ctx, client, "stone")

	unknown, err := client.GetTopicWithResponse(ctx, "nothing")
	check(err, nil)
	if unknown.ApplicationproblemJSON4XX.Type != braidmq.UrnBraidmqTopicNotFound {
		check(fmt.Errorf("a topic that does not exist was found"), nil)
	}

	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"delayed":  header(heron.Headers, "trace"),
		"acked":    acked.JSON200.Accepted,
		"dead":     dead,
		"redriven": redriven.JSON200.Redriven,
		"again":    again.Key,
	}), nil)
}
