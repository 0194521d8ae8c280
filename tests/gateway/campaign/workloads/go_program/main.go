// A transactional producer of franz-go for the campaign, which prints what it does as JSON lines.
//
// Each transaction sends a few records to all partitions of all topics, and is committed, or in
// three of ten cases aborted. A line tells its records before it begins, one tells that it is about
// to be committed, and one tells its outcome: "committed", "aborted", or "unknown" if the commit
// has no answer. Times are those of CLOCK_MONOTONIC, in ns. It ends on SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type send struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Value     string `json:"value"`
	Offset    *int64 `json:"offset,omitempty"`
}

type line struct {
	Number  int    `json:"number"`
	State   string `json:"state"`
	AtNs    int64  `json:"at_ns"`
	Sends   []send `json:"sends,omitempty"`
	Message string `json:"message,omitempty"`
}

type topic struct {
	name       string
	partitions int32
}

var output = json.NewEncoder(os.Stdout)

func now() int64 {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

func main() {
	servers := flag.String("bootstrap-servers", "", "addresses, separated by commas")
	name := flag.String("name", "", "the transactional id, and the first part of each value")
	topics := flag.String("topics", "", "name:partitions, separated by commas")
	seed := flag.Int64("seed", 1, "of the numbers of records, and of the aborts")
	pause := flag.Duration("pause", 300*time.Millisecond, "between two transactions")
	timeout := flag.Duration("timeout", 15*time.Second, "of a transaction")
	first := flag.Int("first", 0, "the number of the first transaction")
	flag.Parse()
	var found []topic
	for _, each := range strings.Split(*topics, ",") {
		name, count, _ := strings.Cut(each, ":")
		partitions, err := strconv.Atoi(count)
		if err != nil {
			panic(err)
		}
		found = append(found, topic{name, int32(partitions)})
	}
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	chance := rand.New(rand.NewSource(*seed))
	number := *first
	for ending.Err() == nil {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(strings.Split(*servers, ",")...),
			kgo.ClientID(*name),
			kgo.TransactionalID(*name),
			kgo.TransactionTimeout(*timeout),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(time.Millisecond),
			kgo.MetadataMaxAge(2*time.Second),
			kgo.MetadataMinAge(200*time.Millisecond),
			kgo.RequestTimeoutOverhead(5*time.Second),
			kgo.RecordDeliveryTimeout(*timeout),
			kgo.RetryTimeout(60*time.Second),
		)
		if err != nil {
			panic(err)
		}
		for ending.Err() == nil {
			if !transact(client, found, *name, number, chance) {
				break // the next client fences this one: its open transaction is aborted
			}
			number++
			select {
			case <-ending.Done():
			case <-time.After(*pause):
			}
		}
		number++
		client.CloseAllowingRebalance()
	}
}

// transact returns whether the client may go on.
func transact(
	client *kgo.Client, topics []topic, name string, number int, chance *rand.Rand,
) bool {
	tell := func(state string, sends []send, err error) {
		message := ""
		if err != nil {
			message = err.Error()
		}
		output.Encode(line{number, state, now(), sends, message})
	}
	var sends []send
	for each := 0; each < 1+chance.Intn(3); each++ {
		for _, to := range topics {
			for partition := int32(0); partition < to.partitions; partition++ {
				value := fmt.Sprintf("%s/%d/%s.%d.%d", name, number, to.name, partition, each)
				sends = append(sends, send{to.name, partition, value, nil})
			}
		}
	}
	isAborted := chance.Float64() < 0.3
	tell("begun", sends, nil)
	if err := client.BeginTransaction(); err != nil {
		tell("aborted", sends, err)
		return false
	}
	var lock sync.Mutex
	var failure error
	var waiting sync.WaitGroup
	ctx := context.Background()
	for at := range sends {
		each := &sends[at]
		record := &kgo.Record{
			Topic: each.Topic, Partition: each.Partition, Value: []byte(each.Value),
		}
		waiting.Add(1)
		client.Produce(ctx, record, func(record *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			defer waiting.Done()
			if err != nil {
				failure = err
			} else {
				each.Offset = &record.Offset
			}
		})
	}
	waiting.Wait()
	if failure == nil && !isAborted {
		tell("committing", nil, nil)
		err := client.EndTransaction(ctx, kgo.TryCommit)
		if err == nil {
			tell("committed", sends, nil)
			return true
		}
		if !errors.Is(err, kerr.OperationNotAttempted) &&
			!errors.Is(err, kerr.TransactionAbortable) {
			tell("unknown", sends, err)
			return false
		}
		failure = err
	}
	if err := client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		// Nobody has asked for a commit: the next client, or the timeout, aborts it.
		tell("aborted", sends, err)
		return false
	}
	tell("aborted", sends, failure)
	return true
}
