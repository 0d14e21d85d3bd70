// Moves messages from one topic to another in transactions, and writes what came of each step as one JSON object a
// line; or, if the first argument is "exchange", sends messages with credentials, and prints what arrives (exchange).
//
// Arguments: service URL, topic to take from, topic to send to, messages of a step, the file to write to, and a file
// for whose coming the last transaction stays open. Steps: a transaction that is committed, and one that is committed
// after that file has come.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	quiet    = 500 * time.Millisecond
	patience = 120 * time.Second
)

type mover struct {
	client        pulsar.Client
	count         int
	taker, looker pulsar.Consumer
	filler        pulsar.Producer
	sender        pulsar.Producer
	out           *json.Encoder
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func main() {
	args := os.Args[1:]
	if args[0] == "exchange" {
		exchange(args[1:])
		return
	}
	file := must(os.Create(args[4]))
	defer file.Close()
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL: args[0], EnableTransaction: true, OperationTimeout: patience,
	}))
	m := &mover{client: client, count: must(strconv.Atoi(args[3])), out: json.NewEncoder(file)}
	m.taker = m.subscribe(args[1], "takes")
	m.looker = m.subscribe(args[2], "looks")
	m.filler = must(client.CreateProducer(pulsar.ProducerOptions{Topic: args[1]}))
	// A transaction does not know when a send would fail: none does.
	m.sender = must(client.CreateProducer(pulsar.ProducerOptions{Topic: args[2], SendTimeout: -1}))
	m.committed()
	m.keptOpen(args[5])
	client.Close()
	m.tell(map[string]any{"step": "closed"})
}

// exchange takes a service URL, a topic, a count of messages, the bytes of each behind its number, a file of
// authorities, and the plugin's name and parameters; it prints the number of each message and how long it is.
func exchange(args []string) {
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL: args[0], TLSTrustCertsFilePath: args[4], TLSValidateHostname: true,
		Authentication: must(pulsar.NewAuthentication(args[5], args[6])), OperationTimeout: patience,
	}))
	defer client.Close()
	m := &mover{client: client, count: must(strconv.Atoi(args[2]))}
	m.taker = m.subscribe(args[1], "takes")
	m.filler = must(client.CreateProducer(pulsar.ProducerOptions{Topic: args[1]}))
	filling := strings.Repeat(".", must(strconv.Atoi(args[3])))
	for number := range m.count {
		message := &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%d %s", number, filling)}
		must(m.filler.Send(context.Background(), message))
	}
	for range m.count {
		message := must(receive(m.taker, patience))
		check(m.taker.Ack(message))
		text := string(message.Payload())
		fmt.Printf("%s%d\n", strings.TrimRight(text, "."), len(text))
	}
}

func (m *mover) tell(step map[string]any) { check(m.out.Encode(step)) }

func (m *mover) committed() {
	m.fill("committed")
	transaction := m.begin(patience)
	m.move(transaction)
	before := m.seen()
	check(transaction.Commit(context.Background()))
	m.tell(map[string]any{"step": "committed", "before": before, "after": m.received()})
}

func (m *mover) keptOpen(until string) {
	m.fill("kept")
	transaction := m.begin(10 * patience)
	m.move(transaction)
	m.tell(map[string]any{"step": "open"})
	for {
		if _, err := os.Stat(until); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	check(transaction.Commit(context.Background()))
	m.tell(map[string]any{"step": "kept_open", "after": m.received()})
}

func (m *mover) subscribe(topic, name string) pulsar.Consumer {
	return must(m.client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: name, Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}))
}

func (m *mover) begin(timeout time.Duration) pulsar.Transaction {
	return must(m.client.NewTransaction(timeout))
}

func (m *mover) fill(name string) {
	for number := range m.count {
		message := &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%s %d", name, number)}
		must(m.filler.Send(context.Background(), message))
	}
}

func (m *mover) send(payload []byte, transaction pulsar.Transaction) {
	message := &pulsar.ProducerMessage{Payload: payload, Transaction: transaction}
	must(m.sender.Send(context.Background(), message))
}

func (m *mover) move(transaction pulsar.Transaction) {
	for range m.count {
		message := must(receive(m.taker, patience))
		m.send(message.Payload(), transaction)
		check(m.taker.AckWithTxn(message, transaction))
	}
}

// seen counts what is there and should not be.
func (m *mover) seen() int {
	found := 0
	for {
		message, err := receive(m.looker, quiet)
		if err != nil {
			return found
		}
		check(m.looker.Ack(message))
		found++
	}
}

// received receives what is due, and counts it with what is there beside.
func (m *mover) received() int {
	found := map[string]bool{}
	for len(found) < m.count {
		message, err := receive(m.looker, patience)
		if err != nil {
			return len(found)
		}
		found[string(message.Payload())] = true
		check(m.looker.Ack(message))
	}
	return m.count + m.seen()
}

func receive(consumer pulsar.Consumer, timeout time.Duration) (pulsar.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return consumer.Receive(ctx)
}
