// A peer that locks with Go's concurrency package; the orders are told in src/interop/mod.rs.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// The ttl of locks that are only measured.
var measured = concurrency.WithTTL(30)

// How long one who waits goes on after the time is over.
const grace = 2 * time.Second

type held struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func main() {
	hosts := strings.Split(strings.TrimPrefix(os.Args[1], "etcd://"), ",")
	config := clientv3.Config{Endpoints: hosts, DialTimeout: 5 * time.Second}
	client, err := clientv3.New(config)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("ready")
	locks := map[string]held{}
	orders := bufio.NewScanner(os.Stdin)
	go func() {
		// A pipe that was closed ends a peer that waits for a lock, too.
		for os.Getppid() != 1 {
			time.Sleep(time.Second)
		}
		os.Exit(0)
	}()
	for orders.Scan() {
		words := strings.Fields(orders.Text())
		if len(words) == 0 || words[0] == "quit" {
			return
		}
		answer, err := obey(client, locks, words)
		if err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Println(answer)
		}
	}
}

func obey(client *clientv3.Client, locks map[string]held, words []string) (string, error) {
	name := words[1]
	if words[0] == "unlock" {
		lock, ok := locks[name]
		if !ok {
			return "not-held", nil
		}
		delete(locks, name)
		select {
		case <-lock.session.Done():
			return "not-held", nil
		default:
		}
		if err := lock.mutex.Unlock(context.Background()); err != nil {
			return "", err
		}
		return "unlocked", lock.session.Close()
	}
	if words[0] == "holds" {
		lock, ok := locks[name]
		if !ok {
			return "lost", nil
		}
		select {
		case <-lock.session.Done():
			return "lost", nil
		default:
			return "holds", nil
		}
	}
	millis, err := strconv.Atoi(words[2])
	if err != nil {
		return "", err
	}
	switch words[0] {
	case "turns":
		length, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return stamped(client, name, millis, time.Duration(length)*time.Millisecond, len(words) > 4)
	case "wait":
		for range millis {
			session, err := concurrency.NewSession(client, measured)
			if err != nil {
				return "", err
			}
			go concurrency.NewMutex(session, name).Lock(context.Background())
		}
		return "waiting", nil
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL((millis+999)/1000))
	if err != nil {
		return "", err
	}
	mutex := concurrency.NewMutex(session, name)
	if words[0] == "lock" {
		err = mutex.Lock(context.Background())
	} else {
		err = mutex.TryLock(context.Background())
	}
	if err == concurrency.ErrLocked {
		return "busy", session.Close()
	}
	if err != nil {
		return "", err
	}
	locks[name] = held{session, mutex}
	return "held", nil
}

// Tasks that take the lock, or each one of its own, for this long: when each asked, had the lock, gave it
// back and was done. Each has a session, made before: two mutexes of one session are one.
func stamped(client *clientv3.Client, name string, tasks int, length time.Duration, own bool) (string, error) {
	sessions := make([]*concurrency.Session, tasks)
	for task := range tasks {
		session, err := concurrency.NewSession(client, measured)
		if err != nil {
			return "", err
		}
		defer session.Close()
		sessions[task] = session
	}
	var group sync.WaitGroup
	end := time.Now().Add(length)
	all, failed := make([][]string, tasks), make([]error, tasks)
	for task, session := range sessions {
		name := name
		if own {
			name = fmt.Sprintf("%s/%d", name, task)
		}
		group.Go(func() { all[task], failed[task] = stamps(session, name, end) })
	}
	group.Wait()
	return strings.Join(append([]string{"turns"}, slices.Concat(all...)...), " "), errors.Join(failed...)
}

func stamps(session *concurrency.Session, name string, end time.Time) ([]string, error) {
	turns, mutex := []string{}, concurrency.NewMutex(session, name)
	until, cancel := context.WithDeadline(context.Background(), end.Add(grace))
	defer cancel()
	for time.Now().Before(end) {
		asked := now()
		if err := mutex.Lock(until); err != nil {
			if until.Err() != nil {
				return turns, nil
			}
			return nil, err
		}
		held := now()
		releasing := now()
		if err := mutex.Unlock(context.Background()); err != nil {
			return nil, err
		}
		turns = append(turns, fmt.Sprintf("%d,%d,%d,%d", asked, held, releasing, now()))
	}
	return turns, nil
}

// Microseconds of a clock that all processes share.
func now() int64 {
	return time.Now().UnixMicro()
}
